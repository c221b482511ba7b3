// Which sources the events are of: what the overhead is told apart by.
#pragma once

#include <cstdint>

#include "arena.h"

namespace profd::recorder {

// In the order of the bits of Source.
inline constexpr int kSources = 5;

struct Mix {
  uint64_t events[kSources] = {};
};

// A sample of the events that were written since the last call. Counting them as they are recorded would cost more than
// the answer is worth; the chunks that are in the arena now say how they are mixed. A few hundred KB are read, so it
// is for the control thread, under its lock, with an arena mapped.
Mix sample_mix();
void reset_mix();  // a new arena

}  // namespace profd::recorder
