// The observer of PyTorch ops: a global RecordFunction callback that writes into the recorder's queues. It takes no lock,
// allocates nothing, never enters Python and never throws; while it is off torch does not know of it.
#pragma once

#include <cstdint>

#include "../recorder/writer.h"

namespace profd::torch_observer {

// Bits of start()'s `wanted`.
enum Wanted : uint32_t {
  kInputs = 1,     // shapes, strides, dtypes, scalars
  kTensorIds = 2,  // addresses of implementations and storages; with kInputs
  kStacks = 4,     // TorchScript call stacks
  kModules = 8,    // TorchScript module hierarchies
  kMobile = 16,    // scopes of the lite interpreter and of static runtime
  kTimes = 32,     // device times by CUDA events: device_times.h
};
inline constexpr uint32_t kAttributes = kInputs | kStacks | kModules;  // what an op is written in several slots for

// For one control thread at a time. start() while started, and stop() while stopped, do nothing.
void start(const recorder::Api& api, uint32_t wanted);

// When it returns no op begins to be recorded any more; ops in flight still end.
void stop();

}  // namespace profd::torch_observer
