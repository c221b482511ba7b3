#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_gather(nanobind::module_& m);

}  // namespace profd
