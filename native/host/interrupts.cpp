#include "interrupts.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace profd::host {
namespace {

constexpr long kPauseNs = 500'000;

thread_local volatile sig_atomic_t t_came = 0;  // `begin` touches it first: a handler may not have it allocated

int number() { return SIGRTMAX - 2; }  // at the end nobody else looks: Python and gRPC use none of these

void came(int) { t_came = 1; }

void handle() {
  struct sigaction action {};
  action.sa_handler = came;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (::sigaction(number(), &action, nullptr) != 0) throw std::system_error(errno, std::generic_category(), "sigaction");
}

void unblock() {
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, number());
  ::pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
}

}  // namespace

Interrupts::Interrupts(bool wanted) : wanted_(wanted) {
  if (!wanted_) return;
  handle();
  unblock();
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = number();
  event.sigev_notify_thread_id = static_cast<pid_t>(::syscall(SYS_gettid));
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) {
    throw std::system_error(errno, std::generic_category(), "timer_create");
  }
}

Interrupts::~Interrupts() {
  if (wanted_) ::timer_delete(timer_);
}

void Interrupts::begin() {
  if (!wanted_) return;
  t_came = 0;
  set(kPauseNs);
}

bool Interrupts::end() {
  if (!wanted_) return false;
  set(0);
  return t_came != 0;
}

void Interrupts::set(long ns) {
  const itimerspec times{{0, ns}, {0, ns}};
  ::timer_settime(timer_, 0, &times, nullptr);
}

}  // namespace profd::host
