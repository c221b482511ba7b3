#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_forward(nanobind::module_& m);

}  // namespace profd
