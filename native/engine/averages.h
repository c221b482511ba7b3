#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_averages(nanobind::module_& m);

}  // namespace profd
