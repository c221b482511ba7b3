#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_lookup(nanobind::module_& m);

}  // namespace profd
