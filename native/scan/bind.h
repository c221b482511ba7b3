// What module.cpp binds; one function a part.
#pragma once

#include <nanobind/nanobind.h>

namespace profd::scan {

void bind_chrome(nanobind::module_& m);
void bind_chunk(nanobind::module_& m);
void bind_wire(nanobind::module_& m);
void bind_writer(nanobind::module_& m);

}  // namespace profd::scan
