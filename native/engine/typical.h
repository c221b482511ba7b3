#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_typical(nanobind::module_& m);

}  // namespace profd
