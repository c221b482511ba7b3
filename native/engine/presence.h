#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_presence(nanobind::module_& m);

}  // namespace profd
