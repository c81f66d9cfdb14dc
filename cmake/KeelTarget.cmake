# How Keel's own targets are defined. Whatever they need is a target property: nothing reaches the targets of a project that
# includes Keel.
include(CheckCXXCompilerFlag)
include(CheckLinkerFlag)

# keel_flags(TARGET): what every target of Keel is compiled with.
function(keel_flags target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    UNITY_BUILD OFF)  # see keel_unity
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow)
  else()  # the other project's flags may enable warnings that Keel triggers, or disable what it needs
    target_compile_options(${target} PRIVATE -w -fexceptions -frtti -fno-fast-math)
  endif()
  if(KEEL_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${KEEL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${KEEL_SANITIZE})
  endif()
endfunction()

# keel_unity(TARGET): compiles its files two dozen at a time, so that the headers and the templates that they share are
# compiled once for all of them. A name that is local to a file must then not be that of something else in the folder.
function(keel_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${KEEL_UNITY} UNITY_BUILD_BATCH_SIZE 24)
endfunction()

# keel_alone(FILES ...): except for these.
function(keel_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# keel_lightly(TARGET): compiled with little optimisation, in two thirds of the time: for what takes no time when it runs.
function(keel_lightly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# GCC fills and copies structs of a few hundred bytes with "rep", whose start-up alone costs as much as the whole copy by
# vectors; a call does so about ten times. Not in debug builds, whose flags clang-tidy reads too.
set(keel_vector_copies -mmemcpy-strategy=vector_loop:2048:noalign,libcall:-1:noalign
  -mmemset-strategy=vector_loop:2048:noalign,libcall:-1:noalign)
list(JOIN keel_vector_copies " " keel_vector_copies_flags)
check_cxx_compiler_flag("${keel_vector_copies_flags}" KEEL_HAS_VECTOR_COPIES)

# keel_folder(NAME SOURCES ... LINKS ...): one target per folder. LINKS are the folders and packages it may include.
function(keel_folder name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(keel_${name} STATIC ${ARG_SOURCES})
  keel_flags(keel_${name})
  if(KEEL_HAS_VECTOR_COPIES)
    target_compile_options(keel_${name} PRIVATE "$<$<NOT:$<CONFIG:Debug>>:${keel_vector_copies}>")
  endif()
  target_include_directories(keel_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(keel_${name} PUBLIC ${ARG_LINKS})
  if(NOT PROJECT_IS_TOP_LEVEL)  # libkeel takes the objects; the archive is not needed
    set_target_properties(keel_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# keel_program(NAME SOURCES ... LINKS ...): a program.
function(keel_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  keel_flags(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS})
endfunction()

# keel_library(TARGET FOLDERS ... LINKS ...): a library that is installed, made of folders.
function(keel_library target)
  cmake_parse_arguments(ARG "" "" "FOLDERS;LINKS" ${ARGN})
  add_library(${target})
  foreach(folder ${ARG_FOLDERS})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:keel_${folder}>)
  endforeach()
  keel_flags(${target})
  target_link_libraries(${target} PRIVATE ${ARG_LINKS})
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  # Before 1.0 a minor version may break, so the minor number is part of the name that a program links.
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  if(APPLE)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH @loader_path)
  else()
    set_target_properties(${target} PROPERTIES INSTALL_RPATH $ORIGIN)
  endif()
  if(PROJECT_IS_TOP_LEVEL)
    set_target_properties(${target} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
      ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  endif()
  if(BUILD_SHARED_LIBS)
    set(exports ${PROJECT_BINARY_DIR}/exports.map)
    configure_file(${PROJECT_SOURCE_DIR}/src/exports.map.in ${exports} @ONLY)
    check_linker_flag(CXX LINKER:--version-script=${exports} KEEL_LINKER_HAS_VERSION_SCRIPT)
    if(KEEL_LINKER_HAS_VERSION_SCRIPT)
      set_target_properties(${target} PROPERTIES LINK_DEPENDS ${exports})
      target_link_options(${target} PRIVATE LINKER:--version-script=${exports})
    endif()
    check_linker_flag(CXX LINKER:--no-undefined KEEL_LINKER_HAS_NO_UNDEFINED)
    if(KEEL_LINKER_HAS_NO_UNDEFINED AND NOT KEEL_SANITIZE)  # whose run-time library comes from the program
      target_link_options(${target} PRIVATE LINKER:--no-undefined)
    endif()
  endif()
endfunction()
