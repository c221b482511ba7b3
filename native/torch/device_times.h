// Device time of ops and ranges by CUDA events, for processes that no CUPTI can be had in: as torch's own profiler does it
// there (ProfilerState::KINETO_GPU_FALLBACK), an event on the thread's current stream where an op begins and one where it
// ends, and the time between them is read when the recording is over. Never ran on a GPU.
//
// The recorder tells of each op and range as it tells CUPTI's collector (recorder::Enclosing), whoever records it.
#pragma once

#include <cstdint>

#include "../recorder/writer.h"

namespace profd::torch_observer {

// What is kept of one recording: two CUDA events each. Ops beyond it are counted (CudaEventsFull).
inline constexpr uint32_t kTimedOpsMax = 1 << 16;

// Control thread, before ops are observed. Throws where torch has no CUDA, or CUPTI's collector hears of ops and ranges.
// While started it does nothing.
void start_device_times(recorder::Api& api);

// On the thread of an op that the recorder is about to be told of, so that what CUDA takes for its event is not the op's
// time; then, whether it was recorded or not, the other. Never throw.
void prepare_timed_op();
void settle_timed_op();

// Control thread, when no op begins any more and while the recording is still live: waits for the device and writes the
// times. In a child of a fork, where CUDA does not work, there are none.
void stop_device_times();

}  // namespace profd::torch_observer
