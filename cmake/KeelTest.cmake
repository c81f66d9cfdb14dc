# keel_test(NAME [TOGETHER] SOURCES ... LINKS ...): one GoogleTest program of a tests/ folder, its tests known to CTest by
# name and run in one process each; TOGETHER: in one process, since they share something slow to set up.
include(GoogleTest)
function(keel_test name)
  cmake_parse_arguments(ARG "TOGETHER" "" "SOURCES;LINKS" ${ARGN})
  keel_program(${name} SOURCES ${ARG_SOURCES} LINKS ${ARG_LINKS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  if(ARG_TOGETHER)
    add_test(NAME ${name} COMMAND ${name})
  else()
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
