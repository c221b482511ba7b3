// Python bindings of the line to a server that is not trusted.
#include <nanobind/nanobind.h>

#include <unistd.h>

#include <system_error>

#include "bind.h"
#include "bind_limits.h"
#include "line.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace profd::host {
namespace {

void open_line(Line* self, int client, int server, nb::object limits) {
  const auto count = [&limits](const char* name) { return nb::cast<int>(limits.attr(name)); };
  const LineLimits native{count("header_block_bytes"), count("header_fields"), rates(limits.attr("rates"))};
  const int ours = own(client);
  int theirs = -1;
  try {
    theirs = own(server);
  } catch (...) {
    ::close(ours);
    throw;
  }
  try {
    new (self) Line(ours, theirs, native);
  } catch (const std::system_error& error) {
    raise_os_error(error.code().value());
  }
}

}  // namespace

void bind_line(nb::module_& m) {
  nb::class_<Line>(m, "Line")
      .def("__init__", &open_line, "client"_a, "server"_a, "limits"_a)
      .def_prop_ro("foreign", &Line::is_foreign)
      .def("end", &Line::end, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace profd::host
