// A timer that ends waits of the thread that has it.
//
// Who drops the last descriptor of a socket that lingers waits for its peer, for as long as its owner has set, or until a
// signal comes. Whoever passes one to us decides that we are the last. So a signal comes, to this thread alone, every
// half a millisecond between `begin` and `end`; nothing is done when it does. The waits of all that one system call has
// dropped end with one.
#pragma once

#include <time.h>

namespace profd::host {

class Interrupts {
 public:
  // Not `wanted`: nothing happens, and costs nothing. Throws std::system_error. Of the thread that makes it.
  explicit Interrupts(bool wanted);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  void begin();
  bool end();  // whether a signal has come since

 private:
  void set(long ns);

  bool wanted_;
  timer_t timer_{};
};

}  // namespace profd::host
