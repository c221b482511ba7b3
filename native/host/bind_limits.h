// What several bindings take from Python, and say to it.
#pragma once

#include <nanobind/nanobind.h>

#include <cerrno>

#include "allowance.h"

namespace profd::host {

[[noreturn]] inline void raise_os_error(int number) {
  errno = number;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nanobind::python_error();
}

// Of a DoorRates.
inline Allowance::Rates rates(nanobind::handle of) {
  const auto number = [&of](const char* name) { return nanobind::cast<double>(of.attr(name)); };
  return {number("streams"), number("streams_burst"), number("work"), number("work_burst")};
}

}  // namespace profd::host
