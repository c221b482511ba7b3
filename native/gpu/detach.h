// Takes CUPTI out of the process. After an unsubscribe its hooks stay in the driver, and every call pays for them
// (docs/gpu.md, what stays behind).
#pragma once

#include <cstdint>

#include "cupti_abi.h"

namespace profd::cupti {

enum class Detached : uint8_t {
  Yes,
  NoCall,   // the program made no CUDA call within the wait: CUPTI stays
  Refused,  // by CUPTI
  Graphs,   // the program uses CUDA graphs: those that were made beside CUPTI fail without it (seen on CUDA 13.0)
  Unknown,  // this CUPTI cannot, or crashes with CUDA graphs when it does (before CUDA 12.6)
};

// `gpu.cupti_after` of a report.
const char* code_of(Detached detached);

// Kinds are off and all buffers are back. CUPTI asks for the exit of a CUDA call as the place to end it: calls back from
// the program's next one, on its thread. Yes: `subscriber` is gone with it. Waits `milliseconds` at most for that call.
Detached detach(const Functions& cupti, Subscriber subscriber, uint32_t version, int milliseconds);

// What the subscription calls back for; nothing but while `detach` waits.
void on_call(void* user, uint32_t domain, uint32_t id, const void* data);

}  // namespace profd::cupti
