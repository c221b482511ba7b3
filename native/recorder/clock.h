// Which clock slots use, and moments on all clocks.
#pragma once

#include "arena.h"

namespace profd::recorder {

// TSC where it is invariant and the kernel itself trusts it, CLOCK_MONOTONIC otherwise.
arena::Clock choose_clock();

// Now: the tightest of `attempts` brackets of CLOCK_MONOTONIC between two readings of the slots' clock.
arena::Anchor read_anchor(arena::Clock clock, int attempts);

}  // namespace profd::recorder
