// profd._host.mapped_names: mapped_names.h for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind.h"
#include "mapped_names.h"

namespace nb = nanobind;

namespace profd::host {
namespace {

nb::list names_in(const nb::bytes& maps, const std::vector<nb::bytes>& names, std::size_t most) {
  std::vector<std::string> wanted, paths;
  for (const nb::bytes& name : names) wanted.emplace_back(name.c_str(), name.size());
  {
    const nb::gil_scoped_release release;
    paths = mapped_names({maps.c_str(), maps.size()}, wanted, most);
  }
  nb::list answer;
  for (const std::string& path : paths) answer.append(nb::bytes(path.data(), path.size()));
  return answer;
}

}  // namespace

void bind_mapped_names(nb::module_& m) {
  m.def("mapped_names", &names_in, nb::arg("maps"), nb::arg("names"), nb::arg("most"));
}

}  // namespace profd::host
