// Derived lines and groups of XSpaces (docs/timeline.md): merge_spans, enclosing, Family.
#pragma once

#include <nanobind/nanobind.h>

namespace profd {

void bind_spans(nanobind::module_& m);

}  // namespace profd
