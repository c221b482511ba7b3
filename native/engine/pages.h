// See pages.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_pages(nanobind::module_& m);

}  // namespace profd
