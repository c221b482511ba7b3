// What module.cpp binds; one function a part.
#pragma once

#include <nanobind/nanobind.h>

namespace profd::host {

void bind_door(nanobind::module_& m);

}  // namespace profd::host
