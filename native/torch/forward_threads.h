// torch numbers threads in its own way (1, 2, 3… by first use) and names the forward thread of a backward op by that
// number. Traces know threads by their OS id, so each observed thread says once per capture which number it has.
#pragma once

#include <cstdint>

namespace profd::torch_observer {

// Numbers of threads that ran no observed op in this process stay what they are, above every OS id (PID_MAX_LIMIT is
// 2^22) and still within the 24 bits that a slot has for them.
inline constexpr uint64_t kUnknownThread = uint64_t{1} << 23;

// The calling thread has this number.
void name_this_thread(uint64_t number);

// The OS id of a thread, or its number | kUnknownThread. Never 0.
uint64_t forward_thread(uint64_t number);

}  // namespace profd::torch_observer
