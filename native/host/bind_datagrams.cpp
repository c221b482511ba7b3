// Python bindings of the drain: datagrams as tuples.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bind.h"
#include "datagrams.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace profd::host {
namespace {

// As Python's socket module gives it: None, bytes of an abstract name, or a path.
nb::object address(const Datagram& datagram) {
  if (datagram.address.empty()) return nb::none();
  if (datagram.address[0] == '\0') return nb::bytes(datagram.address.data(), datagram.address.size());
  PyObject* path = PyUnicode_DecodeFSDefaultAndSize(datagram.address.data(), Py_ssize_t(datagram.address.size()));
  if (path == nullptr) throw nb::python_error();
  return nb::steal(path);
}

nb::list take_datagrams(Drain& drain, std::size_t about) {
  std::vector<Datagram> taken;
  {
    nb::gil_scoped_release release;
    taken = drain.take(about);
  }
  nb::list result;
  for (const Datagram& datagram : taken) {
    result.append(nb::make_tuple(datagram.socket, nb::bytes(datagram.data.data(), datagram.data.size()), datagram.pid,
                                 datagram.uid, datagram.gid, datagram.sent_ns, datagram.attached, datagram.truncated,
                                 address(datagram)));
  }
  return result;
}

nb::dict drain_counts(Drain& drain) {
  const DrainCounts counts = drain.counts();
  nb::dict result;
  result["flood"] = counts.flood;
  result["backlog"] = counts.backlog;
  result["waits"] = counts.waits;
  return result;
}

}  // namespace

void bind_datagrams(nb::module_& m) {
  nb::class_<Shares>(m, "Shares")
      .def(
          "__init__",
          [](Shares* self, std::uint32_t of_process, std::uint32_t of_user, std::size_t processes, std::size_t users) {
            new (self) Shares({of_process, of_user, processes, users});
          },
          nb::kw_only(), "of_process"_a, "of_user"_a, "processes"_a, "users"_a)
      .def("beyond", &Shares::beyond, "pid"_a, "uid"_a, "now_ns"_a);
  nb::class_<Drain>(m, "DatagramDrain")
      .def(
          "__init__",
          [](Drain* self, std::size_t datagram_bytes, std::size_t queued, std::uint32_t of_process,
             std::uint32_t of_user, std::size_t processes, std::size_t users, bool interrupts) {
            new (self) Drain(datagram_bytes, queued, {of_process, of_user, processes, users}, interrupts);
          },
          nb::kw_only(), "datagram_bytes"_a, "queued"_a, "of_process"_a, "of_user"_a, "processes"_a, "users"_a,
          "interrupts"_a = false)
      .def("run", &Drain::run, "sockets"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("take", &take_datagrams, "about"_a)
      .def("stop", &Drain::stop)
      .def("changed", &Drain::changed)
      .def("counts", &drain_counts);
}

}  // namespace profd::host
