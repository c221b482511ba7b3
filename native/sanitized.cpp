// Only in the build of tools/sanitize. ASan looks at the alternate signal stack before whatever does not return, and ends
// the program where that is refused, as it is behind the filters of `stacks`, porters and droppers. They have no such stack.
#include <csignal>

extern "C" int sigaltstack(const stack_t*, stack_t* found) noexcept {
  if (found != nullptr) *found = stack_t{nullptr, SS_DISABLE, 0};
  return 0;
}
