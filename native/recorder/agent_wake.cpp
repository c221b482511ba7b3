#include "agent_wake.h"

#include <cerrno>

#include <fcntl.h>

namespace profd::agent {

bool Wake::open() {
  if (read_.ours() && write_.ours()) return true;
  close();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) return false;
  read_.take(ends[0]);
  write_.take(ends[1]);
  return true;
}

bool Wake::signal() {
  if (!write_.ours()) return false;
  return write(write_.number(), "", 1) > 0 || errno == EAGAIN;  // full: it will wake anyway
}

void Wake::drain() {
  char bytes[64];
  while (read_.ours() && read(read_.number(), bytes, sizeof bytes) > 0) {
  }
}

void Wake::close() {
  read_.close();
  write_.close();
}

}  // namespace profd::agent
