#include "waits.h"

#include <csignal>
#include <sys/time.h>

namespace profd::porter {
namespace {

constexpr suseconds_t kLingerUs = 1000;

void interrupted(int) {}

}  // namespace

bool prepare_waits() {
  struct sigaction action {};
  action.sa_handler = interrupted;
  action.sa_flags = SA_RESTART;
  return ::sigaction(SIGALRM, &action, nullptr) == 0;
}

void interrupt_waits(bool on) {
  const itimerval times{{0, on ? kLingerUs : 0}, {0, on ? kLingerUs : 0}};
  ::setitimer(ITIMER_REAL, &times, nullptr);
}

}  // namespace profd::porter
