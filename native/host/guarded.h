// Questions to /proc that may never be answered, asked by a process that can be given up.
//
// The kernel answers for some files of a process (stat, environ, maps, every link) only when that process is not within
// execve, and for others only when pages of it can be had. Both can take for ever: a FUSE or network file system that
// does not answer is enough. Who waits can be killed and not interrupted, so a thread of ours must not be it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace profd::host {

enum class Kind : int {
  Read = 0,    // of a file, until its end or `limit` bytes
  Record = 1,  // of a file, what one read gives
  Link = 2,    // where it leads
  Open = 3,    // a descriptor, with `limit` as its flags
  Links = 4,   // of a directory: name NUL target NUL, for all entries that are links
  Clock = 5,   // none: CLOCK_REALTIME when its turn comes, in ns, as 8 bytes of this host's order
  InUse = 6,   // none: whether any process has the memory that the pagemap open at descriptor `limit` describes, 1 or 0;
               // after a 0 what follows is not asked: -ECANCELED
};

enum class Outcome : int {
  Answered = 0,
  GivenUp = 1,  // it waited for longer than it may
  NoChild = 2,  // none could be made: errno in the results
  Refused = 3,  // the share of a user is used up: children that ask of that user's processes and cannot be killed
  Starved = 4,  // given up, and its child had no core for most of that time: the host is busy
};

inline constexpr int kRequestsMax = 18;  // 16, when it was, and of which program
inline constexpr std::size_t kPathMax = 128;
inline constexpr std::size_t kStackBytes = 16 << 10;

// What child and parent share; the results lie behind each other in `buffer`.
struct Request {
  Kind kind;
  char path[kPathMax];
  std::uint32_t owner;             // uid of the process that is asked about
  std::uint32_t limit;
  std::size_t offset;              // of its result, with room for `limit` bytes unless it is an Open
  volatile std::int64_t answer;    // bytes, or a descriptor, or -errno; -EINPROGRESS: not yet
};

struct Slot {
  Request requests[kRequestsMax];
  int count;
  volatile int held;               // a descriptor that the child has open and nobody else knows, or -1
  int parent;
  volatile std::int64_t began_ns;  // CLOCK_MONOTONIC, when the child began, and when it had its last answer; 0: not yet
  volatile std::int64_t ended_ns;
  volatile int longest;            // the request that took the child longest
  std::int64_t waited_ns;          // for which the child waited for what it asked, and for no core; 0 where it was quick
  char* stack;
  char* buffer;
  std::size_t room;
  alignas(8) char scratch[4096];   // for the entries of a directory
};

// A slot whose buffer has so much room; null when there is no memory, or too many children could not be killed.
Slot* take_slot(std::size_t room);

// Whether this user may have no further child that waits for ever: they have all that a user may, or the host has.
bool used_up(std::uint32_t owner);
void give_slot(Slot* slot);

// Have the requests answered, for so many seconds where the child waits, ten times that, and 0.1 s at least, where it
// runs. What was not
// answered stays -EINPROGRESS. False in `reusable`: the child could not be killed yet and keeps the slot, and is seen
// to by later calls. `waited_ns` of the slot says how long the processes kept it waiting, and `longest` which of them.
Outcome ask(Slot* slot, double seconds, bool& reusable);

}  // namespace profd::host
