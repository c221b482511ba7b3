#include "locks.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine.h"
#include "words.h"

namespace profd::sampler {
namespace {

constexpr int kThreadsMax = 4096;  // it is asked of 256
constexpr std::size_t kStackBytes = 16384;  // of the waiter, from its stack pointer on
constexpr std::size_t kPointersMax = 2048;
constexpr std::size_t kMapsBytes = 4 << 20;
constexpr std::size_t kRangesMax = 64;  // of the interpreter's data
constexpr std::size_t kCallBytes = 256;
// What glibc's mutexes wait on (lowlevellock.h), and its semaphores, which are CPython's locks.
constexpr std::uint32_t kContended = 2, kTaken = 0;
constexpr unsigned kWait = 0, kWaitBitset = 9, kCommand = 0x7F;  // FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_CMD_MASK
constexpr std::uint64_t kTypeName = 24;  // tp_name of PyTypeObject
constexpr char kRLock[] = "_thread.RLock";

struct Mutex {  // pthread_mutex_t
  std::int32_t lock;
  std::uint32_t count;
  std::int32_t owner;
  std::uint32_t users;
  std::int32_t kind;  // 0 to 3: normal, recursive, errorcheck, adaptive; neither robust nor priorities
};

struct Object {  // rlockobject of CPython 3.8 to 3.13
  std::uint64_t references, type, lock, owner, count;
};

struct Range {
  std::uint64_t begin, end;
};

struct Thread {
  long id = 0;
  int call = -1;  // a descriptor: what it asks the kernel for
};

// The word that a thread sleeps on, the value that it slept at, its stack pointer.
struct Sleep {
  std::uint64_t word = 0, stack = 0;
  std::uint32_t value = 0;
  bool operator==(const Sleep&) const = default;
};

Thread g_threads[kThreadsMax];
Range g_interpreter[kRangesMax];
std::size_t g_ranges = 0;

int open_of(pid_t target, const char* format, long thread) {
  char name[64], path[128];
  std::snprintf(name, sizeof name, format, thread);
  std::snprintf(path, sizeof path, "/proc/%d/%s", target, name);
  return ::open(path, O_RDONLY | O_CLOEXEC);
}

// Those that are not open yet.
void open_all(pid_t target, int count, int& maps) {
  for (int at = 0; at < count; ++at) {
    if (g_threads[at].call < 0) g_threads[at].call = open_of(target, "task/%ld/syscall", g_threads[at].id);
  }
  if (maps < 0) maps = open_of(target, "maps", 0);
}

const char* skip_digits(const char* at, const char* end) {
  while (at < end && *at >= '0' && *at <= '9') ++at;
  return at;
}

bool begins(const char*& at, const char* end, const char* with) {
  const std::size_t length = std::strlen(with);
  if (static_cast<std::size_t>(end - at) < length || std::memcmp(at, with, length) != 0) return false;
  at += length;
  return true;
}

// libpython3.N….so….N, or python, python3, python3.N.
bool is_interpreter(const char* name, const char* end) {
  const char* at = name;
  if (begins(at, end, "libpython3.")) {
    if (at == end || *at < '0' || *at > '9') return false;
    const char* rest = end;
    while (rest > at && (rest[-1] == '.' || (rest[-1] >= '0' && rest[-1] <= '9'))) --rest;
    // What was taken off ends where ".so" does.
    return rest - at >= 4 && std::memcmp(rest - 3, ".so", 3) == 0;
  }
  at = name;
  if (!begins(at, end, "python")) return false;
  if (at < end && *at == '3') ++at;
  if (at == end) return true;
  const char* const digits = at + 1;
  return *at == '.' && digits < end && skip_digits(digits, end) == end;
}

// Where the interpreter's own data lies: lines as `start-end rw-p … /path/libpython3.11.so.1.0`.
void find_interpreter(int maps) {
  static char said[kMapsBytes + 1];
  const ssize_t bytes = read_all(maps, said, kMapsBytes);
  const char* const end = said + std::max<ssize_t>(bytes, 0);
  for (const char* line = said; line < end && g_ranges < kRangesMax;) {
    const auto* stop = static_cast<const char*>(std::memchr(line, '\n', static_cast<std::size_t>(end - line)));
    if (stop == nullptr) stop = end;
    char* at = nullptr;
    const std::uint64_t begin = std::strtoull(line, &at, 16);
    if (at > line && at < stop && *at == '-') {
      const std::uint64_t behind = std::strtoull(at + 1, &at, 16);
      const char* rest = at;
      const auto* slash = static_cast<const char*>(::memrchr(line, '/', static_cast<std::size_t>(stop - line)));
      if (rest < stop && begins(rest, stop, " rw-p ") && slash != nullptr && slash >= rest &&
          is_interpreter(slash + 1, stop)) {
        g_interpreter[g_ranges++] = {begin, behind};
      }
    }
    line = stop + 1;
  }
}

bool in_interpreter(std::uint64_t word) {
  return std::any_of(g_interpreter, g_interpreter + g_ranges,
                     [word](const Range& data) { return data.begin <= word && word < data.end; });
}

// Nine words: the call, six arguments, stack and instruction pointer. False: it does not sleep on a futex.
bool sleeps(int call, Sleep& found) {
  char said[kCallBytes + 1];
  const ssize_t bytes = ::pread(call, said, kCallBytes, 0);
  if (bytes <= 0) return false;
  said[bytes] = '\0';
  std::uint64_t words[9];
  char* at = said;
  for (auto& word : words) {
    char* end = nullptr;
    word = std::strtoull(at, &end, &word == words ? 10 : 16);
    if (end == at) return false;
    at = end;
  }
  const auto command = static_cast<unsigned>(words[2]) & kCommand;
  if (words[0] != SYS_futex || (command != kWait && command != kWaitBitset)) return false;
  found = {words[1], words[7], static_cast<std::uint32_t>(words[3])};
  return true;
}

bool read_whole(pid_t target, std::uint64_t at, void* into, std::size_t bytes) {
  constexpr std::uint64_t kUserEnd = std::uint64_t{1} << 63;
  return at > 0 && at < kUserEnd && read_memory(target, at, into, bytes) == bytes;
}

// The thread that holds the mutex; 0: not sure.
std::int32_t holder_of_mutex(pid_t target, std::uint64_t word) {
  Mutex mutex{};
  if (!read_whole(target, word, &mutex, sizeof mutex)) return 0;
  const bool sure = mutex.lock == kContended && mutex.users > 0 && mutex.kind >= 0 && mutex.kind < 4 && mutex.owner > 0;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/task/%d", target, mutex.owner);
  return sure && ::access(path, F_OK) == 0 ? mutex.owner : 0;
}

bool is_rlock(pid_t target, std::uint64_t type) {
  std::uint64_t name = 0;
  char said[sizeof kRLock];
  return read_whole(target, type + kTypeName, &name, sizeof name) && read_whole(target, name, said, sizeof said) &&
         std::memcmp(said, kRLock, sizeof said) == 0;
}

// Words of the stack that may be pointers, each once, the smallest ones: how many.
std::size_t pointers_on(pid_t target, std::uint64_t stack, std::uint64_t* into) {
  static char seen[kStackBytes];
  std::size_t have = 0;
  while (have < kStackBytes) {  // to the end of what is mapped
    const std::uint64_t at = stack + have;
    const std::size_t length = std::min<std::size_t>(kPageBytes - at % kPageBytes, kStackBytes - have);
    if (!read_whole(target, at, seen + have, length)) break;
    have += length;
  }
  std::size_t count = 0;
  for (std::size_t at = 0; at + sizeof *into <= have; at += sizeof *into) {
    std::uint64_t word = 0;
    std::memcpy(&word, seen + at, sizeof word);
    if (word % 8 == 0 && word >> 16 != 0) into[count++] = word;
  }
  std::sort(into, into + count);
  return std::min<std::size_t>(static_cast<std::size_t>(std::unique(into, into + count) - into), kPointersMax);
}

// What pthread_self gives the thread that holds the RLock; 0: not sure.
std::uint64_t holder_of_rlock(pid_t target, const Sleep& sleep) {
  static std::uint64_t pointers[kStackBytes / sizeof(std::uint64_t)];
  const std::size_t count = pointers_on(target, sleep.stack, pointers);
  for (std::size_t at = 0; at < count; ++at) {
    Object object{};
    if (read_whole(target, pointers[at], &object, sizeof object) && object.lock == sleep.word && object.owner != 0 &&
        object.count != 0 && is_rlock(target, object.type)) {
      return object.owner;
    }
  }
  return 0;
}

// For those that wait for the same lock before and after it was looked at.
void look_at(pid_t target, const Thread& thread) {
  Sleep sleep, again;
  if (thread.call < 0 || !sleeps(thread.call, sleep)) return;
  char said[96];
  int bytes = 0;
  if (in_interpreter(sleep.word)) {  // it waits anew every 5 ms, on one of two words: another look says no more
    bytes = std::snprintf(said, sizeof said, "%ld gil\n", thread.id);
  } else {
    const std::int32_t owner = sleep.value == kContended ? holder_of_mutex(target, sleep.word) : 0;
    const std::uint64_t ident = sleep.value == kTaken ? holder_of_rlock(target, sleep) : 0;
    if ((owner == 0 && ident == 0) || !sleeps(thread.call, again) || !(sleep == again)) return;
    bytes = owner != 0 ? std::snprintf(said, sizeof said, "%ld thread %d\n", thread.id, owner)
                       : std::snprintf(said, sizeof said, "%ld ident %llu\n", thread.id,
                                       static_cast<unsigned long long>(ident));
  }
  if (::write(STDOUT_FILENO, said, static_cast<std::size_t>(bytes)) != bytes) ::_exit(1);
}

}  // namespace

[[noreturn]] void look_at_locks(char** arguments, int count) {
  const auto target = static_cast<pid_t>(number(arguments[2]));
  const int threads = count - kArguments;
  if (threads > kThreadsMax) fail("look at locks", "it was asked of too many threads");
  for (int at = 0; at < threads; ++at) g_threads[at].id = number(arguments[kArguments + at]);
  int maps = -1;
  open_all(target, threads, maps);  // root's are open to root alone, users' to themselves
  confine(arguments);
  open_all(target, threads, maps);
  if (maps >= 0) find_interpreter(maps);
  for (int at = 0; at < threads; ++at) look_at(target, g_threads[at]);
  ::_exit(0);
}

}  // namespace profd::sampler
