// Training steps: how many there were, and how long they took. Counted whether anything is recorded or not, so that
// steps before a capture can be compared with those during it.
#pragma once

#include <cstdint>

#include "writer.h"

namespace profd::recorder {

// A step ends and the next begins. Any thread. True: it is the one that is awaited.
bool note_step(uint64_t monotonic_ns);

// Nobody watches any more: the next note_step begins a step, and does not end the one that runs now.
void pause_steps();

// note_step says when so many whole steps have ended from now on, and `least_ns` have passed, if this session still
// records then; 0 steps: never.
void await_steps(uint64_t whole, Session session, uint64_t least_ns = 0);

struct Steps {
  uint64_t count = 0;        // ended since the process began
  uint64_t known = 0;        // of those after step number `since` the last ones, at most 64, that followed one another
  uint64_t median_ns = 0;    // of them; 0: none
  uint64_t running_for = 0;  // ns since the last of all ended; 0: none runs
};

Steps steps_since(uint64_t since, uint64_t monotonic_ns);

}  // namespace profd::recorder
