// The bindings of profd._scan. Each part declares one bind_* function.
#include <nanobind/nanobind.h>

#include "bind.h"

NB_MODULE(_scan, m) {
  nanobind::set_leak_warnings(false);  // at exit threads of ours still hold objects; the kernel takes them back
  m.doc() = "Untrusted bytes to columns.";
  profd::scan::bind_chrome(m);
  profd::scan::bind_chunk(m);
  profd::scan::bind_wire(m);
  profd::scan::bind_writer(m);
}
