#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_links(nanobind::module_& m);

}  // namespace profd
