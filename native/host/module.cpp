// The bindings of profd._host. Each part declares one bind_* function.
#include <nanobind/nanobind.h>

#include "bind.h"

NB_MODULE(_host, m) {
  nanobind::set_leak_warnings(false);  // at exit threads of ours still hold objects; the kernel takes them back
  m.doc() = "What the daemon asks of the kernel.";
  profd::host::bind_datagrams(m);
  profd::host::bind_sender_filter(m);
  profd::host::bind_guarded(m);
  profd::host::bind_mapped_names(m);
  profd::host::bind_json_members(m);
  profd::host::bind_door(m);
  profd::host::bind_line(m);
  profd::host::bind_reception(m);
}
