// Wakes the control thread out of its poll(2).
#pragma once

#include "descriptor.h"

namespace profd::agent {

class Wake {
 public:
  bool open();      // true: there is a pipe of ours, maybe a new one
  bool signal();    // never waits; false: nobody is woken
  void drain();
  void close();     // async-signal-safe
  int fd() const { return read_.number(); }

 private:
  // Not an eventfd: those all have one inode, so that ours could not be told from the job's.
  Descriptor read_, write_;
};

}  // namespace profd::agent
