#include "clock.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace profd::recorder {

namespace {

int64_t nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

#if defined(__x86_64__)
bool invariant_tsc() {
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}

// The kernel drops the TSC as its clock source when it finds it unsteady. Unreadable (masked sysfs): believe the CPU.
bool kernel_trusts_tsc() {
  const int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true;
  char text[16] = {};
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  return got <= 0 || std::strcmp(text, "tsc\n") == 0;
}
#endif

}  // namespace

arena::Clock choose_clock() {
#if defined(__x86_64__)
  if (invariant_tsc() && kernel_trusts_tsc()) return arena::Clock::Tsc;
#endif
  return arena::Clock::MonotonicNs;
}

arena::Anchor read_anchor(arena::Clock clock, int attempts) {
  arena::Anchor best{};
#if defined(__x86_64__)
  if (clock == arena::Clock::Tsc) {
    uint64_t tightest = UINT64_MAX;
    for (int i = 0; i < attempts; i++) {
      const uint64_t before = __rdtsc();
      const uint64_t mono = static_cast<uint64_t>(nanoseconds(CLOCK_MONOTONIC));
      const uint64_t after = __rdtsc();
      const int64_t real = nanoseconds(CLOCK_REALTIME);
      const int64_t real_age = (nanoseconds(CLOCK_MONOTONIC) - static_cast<int64_t>(mono)) / 2;
      if (after - before < tightest) {
        tightest = after - before;
        best = {before + (after - before) / 2, mono, real - real_age};
      }
    }
    return best;
  }
#endif
  (void)clock;
  (void)attempts;
  best.mono_ns = static_cast<uint64_t>(nanoseconds(CLOCK_MONOTONIC));
  best.real_ns = nanoseconds(CLOCK_REALTIME);
  best.ticks = best.mono_ns;
  return best;
}

}  // namespace profd::recorder
