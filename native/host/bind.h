// What module.cpp binds; one function a part.
#pragma once

#include <nanobind/nanobind.h>

namespace profd::host {

}  // namespace profd::host
