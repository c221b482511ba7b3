// What torch's flight recorder remembers of the collectives of this process, for a daemon that asks (RECALL).
//
// Python's own function for it holds the GIL for some ten ms; this calls what lies below, without the GIL, so it answers
// for a process whose threads all wait for that, too. A thread of its own does so: the recorder's lock, or the loader's,
// may be held by a thread that hangs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "agent_requests.h"

namespace profd::agent {

inline constexpr std::size_t kRecallBytesMax = 8 << 20;  // RECALL_BYTES_MAX of the daemon

// Begins; what comes of it lies in `requests.recalled` later, and the control thread is woken. Without `entries` only
// the numbers of the last collectives. One at a time: another is answered with `why`.
void recall(Requests& requests, uint64_t number, bool entries);

// In a fork child, locked: the thread is the parent's.
void forget_recall(Requests& requests);

}  // namespace profd::agent
