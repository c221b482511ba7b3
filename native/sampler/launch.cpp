#include "launch.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine.h"
#include "words.h"

namespace profd::sampler {
namespace {

[[noreturn]] void fail_with(const char* format, const char* path) {
  static char what[kPageBytes + 64];
  const int error = errno;
  std::snprintf(what, sizeof what, format, path);
  fail(what, std::strerror(error));
}

}  // namespace

[[noreturn]] void launch(char** arguments) {
  char** const command = arguments + kArguments;
  // Before the identity changes: it may lie where only the daemon may go.
  const int program = ::open(command[0], O_PATH | O_CLOEXEC);
  if (program < 0) fail_with("open %s", command[0]);
  const std::uint64_t secret = confine(arguments);
  char* const environment[] = {nullptr};
  // The last exec there is: the filter permits the one that names the secret.
  ::syscall(SYS_execveat, program, "", command, environment, AT_EMPTY_PATH, secret);
  fail_with("run %s (a program, not a script)", command[0]);
}

}  // namespace profd::sampler
