# Sets KEEL_WITH_MPI: whether libkeel_mpi and keel-mpi are built.
set(KEEL_WITH_MPI OFF)
if(NOT KEEL_BUILD_MPI OR KEEL_PREBUILT)
  return()
endif()
set(MPI_CXX_SKIP_MPICXX ON)  # the old C++ bindings, which nobody needs
find_package(MPI COMPONENTS CXX QUIET)
if(MPI_CXX_FOUND)
  set(KEEL_WITH_MPI ON)
elseif(KEEL_BUILD_MPI STREQUAL "AUTO")
  message(STATUS "libkeel_mpi is left out: MPI was not found (Debian: libopenmpi-dev)")
else()
  message(FATAL_ERROR "KEEL_BUILD_MPI: expected MPI (Debian: libopenmpi-dev), found none")
endif()
