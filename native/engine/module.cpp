// The bindings of profd._engine. Each part declares one bind_* function.
#include <nanobind/nanobind.h>

#include "averages.h"
#include "calls.h"
#include "columns.h"
#include "demangle.h"
#include "forward.h"
#include "gather.h"
#include "lanes.h"
#include "links.h"
#include "lookup.h"
#include "pages.h"
#include "paths.h"
#include "presence.h"
#include "roles.h"
#include "spans.h"
#include "tensors.h"
#include "tree.h"
#include "typical.h"
#include "view.h"

NB_MODULE(_engine, m) {
  nanobind::set_leak_warnings(false);  // at exit threads of ours still hold objects; the kernel takes them back
  m.doc() = "Hot loops of the trace engine over columns.";
  profd::bind_averages(m);
  profd::bind_calls(m);
  profd::bind_columns(m);
  profd::bind_demangle(m);
  profd::bind_forward(m);
  profd::bind_gather(m);
  profd::bind_lanes(m);
  profd::bind_links(m);
  profd::bind_lookup(m);
  profd::bind_pages(m);
  profd::bind_paths(m);
  profd::bind_presence(m);
  profd::bind_roles(m);
  profd::bind_spans(m);
  profd::bind_tensors(m);
  profd::bind_tree(m);
  profd::bind_typical(m);
  profd::bind_view(m);
}
