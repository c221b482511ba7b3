#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_demangle(nanobind::module_& m);

}  // namespace profd
