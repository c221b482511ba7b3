#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_tensors(nanobind::module_& m);

}  // namespace profd
