#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_lanes(nanobind::module_& m);

}  // namespace profd
