// Python bindings of the filter on senders: what the kernel refuses is an OSError.
#include <nanobind/nanobind.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "bind.h"
#include "sender_filter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace profd::host {
namespace {

[[noreturn]] void raise(const std::system_error& error) {
  const std::string what = error.what();  // the call, then the error in words
  errno = error.code().value();
  PyErr_SetFromErrnoWithFilename(PyExc_OSError, what.substr(0, what.find(':')).c_str());
  throw nb::python_error();
}

}  // namespace

void bind_sender_filter(nb::module_& m) {
  nb::class_<SenderFilter>(m, "SenderFilter")
      .def(
          "__init__",
          [](SenderFilter* self, std::uint32_t of_process, std::uint32_t of_user, std::uint32_t remembered, bool by_user) {
            try {
              new (self) SenderFilter({of_process, of_user, remembered}, by_user);
            } catch (const std::system_error& error) {
              raise(error);
            }
          },
          nb::kw_only(), "of_process"_a, "of_user"_a, "remembered"_a, "by_user"_a = true)
      .def(
          "attach",
          [](const SenderFilter& self, int socket) {
            try {
              self.attach(socket);
            } catch (const std::system_error& error) {
              raise(error);
            }
          },
          "socket"_a)
      .def("dropped", &SenderFilter::dropped)
      .def_prop_ro("program", &SenderFilter::program);
}

}  // namespace profd::host
