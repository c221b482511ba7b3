// Finds libcupti in this process and its functions.
#pragma once

#include <string>

#include "cupti_abi.h"
#include "state.h"

namespace profd::cupti {

// libcuda as this process has it; null where it has not.
void* driver();

// Whether a libcupti is mapped already.
bool is_mapped();

// The library that is mapped already; else, once libcuda is there, the one the loader finds. Null: `state` and `why`, a sentence.
// The result stays for the life of the process. PROFD_CUPTI_LIBRARY names another library (tests).
const Functions* library(State* state, std::string* why);

// 12 or 13 of a cuptiGetVersion number; 0: unknown.
uint32_t cuda_major(uint32_t version);

// "CUPTI_ERROR_... (35)".
std::string describe(const Functions& cupti, Result result);

}  // namespace profd::cupti
