// A thread in which no signal is handled: signals are Python's.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace profd::host {

// `name`: at most 15 bytes. Throws std::system_error.
template <typename Work>
std::thread quiet_thread(const char* name, Work work) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace profd::host
