# keel_folder(NAME SOURCES ... LINKS ...): one target a folder. LINKS are the folders and packages it may include.
function(keel_folder name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(keel_${name} STATIC ${ARG_SOURCES})
  target_include_directories(keel_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(keel_${name} PUBLIC ${ARG_LINKS})
endfunction()
