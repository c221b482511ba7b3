#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_columns(nanobind::module_& m);

}  // namespace profd
