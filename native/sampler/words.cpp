#include "words.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/uio.h>
#include <unistd.h>

namespace profd::sampler {

[[noreturn]] void fail(const char* what, const char* why) {
  if (why == nullptr) why = std::strerror(errno);
  // No stdio: behind the filter it asks for calls that there are not.
  static char line[2 * kPageBytes];
  const int bytes = std::snprintf(line, sizeof line, "Error: the sampler could not %s: %s\n", what, why);
  const auto length = bytes < 0 ? 0 : bytes < static_cast<int>(sizeof line) ? bytes : static_cast<int>(sizeof line) - 1;
  if (::write(STDERR_FILENO, line, static_cast<std::size_t>(length)) < 0) ::_exit(1);
  ::_exit(1);
}

long number(const char* word) {
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(word, &end, 10);
  if (end == word || *end != '\0' || errno != 0) fail("read its arguments", "a number was expected");
  return value;
}

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

ssize_t read_all(int file, char* into, std::size_t most) {
  std::size_t have = 0;
  while (have < most) {
    const ssize_t got = ::read(file, into + have, most - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return static_cast<ssize_t>(have);
}

std::size_t read_memory(pid_t process, std::uint64_t at, void* into, std::size_t bytes) {
  if (g_stop != 0) return 0;
  const iovec here{into, bytes};
  const iovec there{reinterpret_cast<void*>(at), bytes};
  const ssize_t got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

}  // namespace profd::sampler
