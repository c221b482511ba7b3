// The clock of the agent's thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace profd::agent {

using Milliseconds = int64_t;
inline constexpr Milliseconds kNever = INT64_MAX;
Milliseconds now_ms();  // CLOCK_MONOTONIC

}  // namespace profd::agent
