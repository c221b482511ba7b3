// Device time of ops by CUDA events, for processes that no CUPTI can be had in: as torch's own profiler does it there
// (ProfilerState::KINETO_GPU_FALLBACK), an event on the thread's current stream where an op begins and one where it ends,
// and the time between them is read when the recording is over. Never ran on a GPU.
#pragma once

#include <cstdint>

#include "../recorder/writer.h"

namespace profd::torch_observer {

// What is kept of one recording: two CUDA events each. Ops beyond it are counted (CudaEventsFull).
inline constexpr uint32_t kTimedOpsMax = 1 << 16;

// An op whose first event has been recorded; `number` 0: none has.
struct TimedOp {
  uint32_t recording = 0;
  uint32_t number = 0;
  uint64_t id = 0;  // correlation id of the op, for its caller to set
};

// Control thread, before ops are observed. Throws where torch has no CUDA. While started it does nothing.
void start_device_times(const recorder::Api& api);

// On the thread of the op, around it; never throw.
TimedOp begin_timed_op();
void end_timed_op(const TimedOp& op);

// Control thread, when no op begins any more and while the recording is still live: waits for the device and writes the
// times. In a child of a fork, where CUDA does not work, there are none.
void stop_device_times();

}  // namespace profd::torch_observer
