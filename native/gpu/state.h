// Why CUDA's work is not recorded, or not whole: a closed set, each with a sentence that says what to do. The codes are
// told to the daemon as `gpu.state` (docs/gpu.md has them, daemon/profd/gpu/states.py reads them).
#pragma once

#include <string>
#include <string_view>

#include "cupti_abi.h"

namespace profd::cupti {

enum class State {
  Ok,
  NoDriver,           // libcuda is not loaded
  NoCupti,            // no libcupti is to be found
  UnknownCupti,       // of another major version, or without functions that we need
  DriverMismatch,     // CUPTI does not work with this driver
  ForeignSubscriber,  // another tool has it
  NoPrivilege,        // the driver lets only administrators profile
  Unsupported,        // MIG, vGPU, confidential computing, WSL, a mining GPU
  ForeignClock,       // CUPTI's times cannot be told
  Forked,             // CUDA does not work in this child
  Failed,             // anything else
  // What turns out while it records:
  NoKernels,     // launches, and nothing that they ran
  TakenOver,     // another tool has taken CUPTI's buffers, or has ended CUPTI
  GpuLost,       // CUDA reports an error of a device
  StillRunning,  // a kernel that did not end in time
};

std::string_view code_of(State state);

// What a result of cuptiSubscribe or cuptiActivityEnable means.
State state_of(Result result);

// For a state that a result explains. `described` is "CUPTI_ERROR_... (43)"; `holder` may be empty.
std::string sentence_of(State state, const std::string& described, const std::string& holder = {});

}  // namespace profd::cupti
