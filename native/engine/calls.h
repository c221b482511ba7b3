#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_calls(nanobind::module_& m);

}  // namespace profd
