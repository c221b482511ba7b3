#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_tree(nanobind::module_& m);

}  // namespace profd
