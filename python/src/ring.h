#pragma once

#include <nanobind/nanobind.h>

namespace keel::python {

// The calls over many processes, whose transport is an object of Python.
void add_ring(nanobind::module_& m);

}  // namespace keel::python
