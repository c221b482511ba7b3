// What several bindings take from Python, and say to it.
#pragma once

#include <nanobind/nanobind.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "allowance.h"

namespace profd::host {

[[noreturn]] inline void raise_os_error(int number) {
  errno = number;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nanobind::python_error();
}

// A copy of a descriptor that Python has, which goes on to be Python's; of a socket, which does not block from here on.
inline int own(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) raise_os_error(errno);
  if (::fcntl(copy, F_SETFL, ::fcntl(copy, F_GETFL) | O_NONBLOCK) == 0) return copy;
  const int number = errno;
  ::close(copy);
  raise_os_error(number);
}

// Of a FrameRates (fairness/frame_rates.py).
inline Allowance::Rates rates(nanobind::handle of) {
  const auto number = [&of](const char* name) { return nanobind::cast<double>(of.attr(name)); };
  return {number("streams"), number("streams_burst"), number("work"), number("work_burst")};
}

}  // namespace profd::host
