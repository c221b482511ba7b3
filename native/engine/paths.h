#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_paths(nanobind::module_& m);

}  // namespace profd
