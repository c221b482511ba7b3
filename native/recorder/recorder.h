// The recorder of this process: makes the arena, lets threads write into it (writer.h), and takes it away again.
// Nothing here needs the GIL or knows of Python.
#pragma once

#include <cstdint>
#include <string>

#include "mix.h"
#include "writer.h"

namespace profd::recorder {

inline constexpr uint64_t kArenaBytesMax = uint64_t{4} << 30;
inline constexpr uint64_t kStringsBytesMax = uint64_t{256} << 20;

struct ArmRequest {
  uint64_t epoch = 0;          // of the daemon; goes into the arena's header
  uint64_t arena_bytes = 0;    // rounded up to chunks
  uint64_t strings_bytes = 0;  // rounded up to pages
  uint32_t sources = kRanges;  // Source bits
};

// Events since the arm. `recorded` counts published events, open chunks included.
struct Totals {
  uint64_t recorded = 0;
  uint64_t lost[arena::kLostReasons] = {};
};

// The one of this process. `state` is what every event reads; the rest are the slow paths.
[[gnu::visibility("hidden")]] extern Api api;  // said here too: else it is reached through the GOT

// This thread's queue; null (counted) where none can be had.
extern __thread Thread* this_thread __attribute__((visibility("hidden")));
inline Thread* current_thread() {
  return __builtin_expect(this_thread != nullptr, 1) ? this_thread : api.make_thread();
}

// Counts events (or parts of them) that the caller left out.
void lose(Lost why, uint64_t events);

inline bool recording() { return api.state.live.load(std::memory_order_relaxed) != 0; }

// The functions below are for one control thread at a time (they lock); a fork may happen beside them.

// Once, before the first arm, off the hot path: clock, membarrier, fork handlers. arm() calls it if nobody has.
void prepare();

// Makes, seals and maps an arena and turns the sources on. False: `why` is a sentence. One arena at a time: an earlier
// one must have been released.
bool arm(const ArmRequest& request, std::string* why);

// Makes the whole arena resident: for measurements of what comes after the first touch.
void populate();

// The arena's memfd, -1 while there is none, or where the job has closed it. It stays the recorder's: duplicate or send it.
int arena_fd();

// Changes which sources record, without ending the session (backing off).
void set_sources(uint32_t sources);

// Turns recording off and waits (at most 100 ms) until no thread writes. The arena stays for its reader.
void disarm();

// Lets go of the arena. False: a thread is still inside a write; call again.
bool release();

// Once a second while armed: renews the header's latest anchor.
void tick();

Totals totals();

// How the events since the last call are mixed: a sample.
Mix mix();

// Random, never 0; a fork child gets its own. Stays the same for the process image.
uint64_t incarnation();

// Now, on the three clocks.
Anchor anchor();

}  // namespace profd::recorder
