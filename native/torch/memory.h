// Allocations and frees of CPU tensors on all threads, by standing in for torch's CPU allocator while a capture asks for
// them. Not seen: blocks that were allocated before the start, memory that others own (from_numpy), shared memory,
// scratch space of oneDNN and MKL, and other devices.
#pragma once

#include "../recorder/writer.h"

namespace profd::torch_observer {

// Throws std::runtime_error with a sentence where somebody else's allocator has the say.
void start_memory(const recorder::Api& api);

// Afterwards allocations go past us. Blocks that came through us know our deleter until they die.
void stop_memory();

}  // namespace profd::torch_observer
