// The little of CUDA's driver that the end of a recording needs.
#pragma once

#include <string>

namespace profd::cupti {

// libcuda as this process has it; null where it has not.
void* driver();

struct Waited {
  bool ended = true;   // everything that was launched has ended
  int device = -1;     // that reports an error
  int error = 0;       // CUresult of it
};

// Until every kernel that was launched so far has ended, on each device that this process uses, or for so long: a
// kernel may run for ever, and a lost GPU may never answer.
Waited wait_for_devices(int seconds);

}  // namespace profd::cupti
