// StoredView: torch's view of a trace, from the tree that it is stored with.
#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_view(nanobind::module_& m);

}  // namespace profd
