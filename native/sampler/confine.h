// Gives up what a sampler may not have: docs/security.md, "Samplers".
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace profd::sampler {

// PARENT MEMORY_BYTES TARGET UID GID LISTENER CORES GROUP
inline constexpr int kArguments = 8;

// Give it up, as these arguments say: the secret of the one exec. Ends with status 1 and a reason if it cannot.
//
// UID and GID are -1 where the daemon has no other to give. Standard input brings the secret, then the filter and one
// that asks nothing, if that would do, each after its length. LISTENER is the descriptor that tells where the filter's
// questions are, to the warden or to the daemon; -1 for none. `prepare` is called with the identity that it keeps, before
// the filter.
std::uint64_t confine(char** arguments, void (*prepare)(pid_t target) = nullptr);

// Enter the cgroup, to which all counts that is taken from here on: its directory, or empty for the daemon's. Ends with
// status 1 and a reason if it cannot. It takes ten to sixty milliseconds, in which nothing is done: the kernel waits
// until no process forks or ends.
void enter(const char* group);

// Run on these cores alone, by their numbers with commas; empty: on any.
void stay_on(const char* cores);

// Those that this process may use, as bits.
std::uint64_t permitted_capabilities();

// Give up all others. False: that failed.
bool hold_capabilities(std::uint64_t permitted, std::uint64_t effective, std::uint64_t inheritable);

}  // namespace profd::sampler
