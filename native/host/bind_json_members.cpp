// profd._host.json_members: json_members.h for Python.
#include <nanobind/nanobind.h>

#include <vector>

#include "bind.h"
#include "json_members.h"

namespace nb = nanobind;

namespace profd::host {
namespace {

nb::dict members_in(const nb::bytes& text, std::size_t most) {
  std::vector<JsonMember> members;
  {
    const nb::gil_scoped_release release;
    members = json_members({text.c_str(), text.size()}, most);
  }
  nb::dict answer;
  for (const JsonMember& one : members) {
    answer[nb::bytes(text.c_str() + one.name, one.name_end - one.name)] =
        nb::bytes(text.c_str() + one.value, one.value_end - one.value);
  }
  return answer;
}

}  // namespace

void bind_json_members(nb::module_& m) { m.def("json_members", &members_in, nb::arg("text"), nb::arg("most")); }

}  // namespace profd::host
