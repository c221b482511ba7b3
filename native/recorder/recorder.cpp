// The arena's life: arm, disarm, release, and what a fork makes of it.
#include "recorder.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "clock.h"
#include "session.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace profd::recorder {

Api api = {
    .state = {},
    .version = kApiVersion,
    .bytes = sizeof(Api),
    .thread_slot = thread_slot,
    .make_thread = make_thread,
    .take_chunk = take_chunk,
    .end_elsewhere = end_elsewhere,
    .intern = intern_string,
    .lose = lose,
    .incarnation = incarnation,
};

Arena mapped;

namespace {

constexpr int kQuietPolls = 100;  // of a millisecond
constexpr int kStoresSeenMicroseconds = 10'000;

pthread_mutex_t control = PTHREAD_MUTEX_INITIALIZER;
bool prepared = false;
bool barriers = false;  // membarrier(2) works
Session sessions = 0;
std::atomic<uint64_t> own_incarnation{0};
std::atomic<pid_t> own_pid{0};

class Locked {
 public:
  Locked() { pthread_mutex_lock(&control); }
  ~Locked() { pthread_mutex_unlock(&control); }
};

bool fail(std::string* why, const char* what) {
  *why = std::string(what) + ": " + std::strerror(errno);
  return false;
}

bool register_barriers() { return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0; }

bool barrier() {
  if (!barriers) return false;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return true;
  return register_barriers() && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

bool any_thread_writes() {
  for (Thread* thread = first_thread(); thread; thread = thread->all) {
    if (thread->writing.load(std::memory_order_acquire)) return true;
  }
  return false;
}

// With `live` cleared: waits until every thread has seen it. False for a thread that does not get to run.
//
// Without membarrier (a sandbox forbids it) a thread may have read `live` and its `writing` may not be seen yet. What keeps it
// from being seen is a store buffer, which is empty within a microsecond or when the thread stops running.
bool wait_until_quiet() {
  if (!barrier()) usleep(kStoresSeenMicroseconds);
  for (int i = 0; i < kQuietPolls; i++) {
    if (!any_thread_writes()) return true;
    usleep(1000);
  }
  return !any_thread_writes();
}

int make_memfd(uint64_t bytes, std::string* why) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = memfd_create("profd-arena", flags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) fd = memfd_create("profd-arena", flags);
  if (fd < 0) {
    fail(why, "the arena could not be made");
    return -1;
  }
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail(why, "the arena could not be sized and sealed");
    close(fd);
    return -1;
  }
  return fd;
}

// Maps it at a multiple of the chunk size, so that a slot's address tells its place in its chunk.
uint8_t* map_aligned(int fd, uint64_t bytes) {
  const uint64_t room = bytes + arena::kChunkBytes;
  void* range = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  const uint64_t start = reinterpret_cast<uint64_t>(range);
  const uint64_t base = arena::round_up(start, arena::kChunkBytes);
  if (base > start) munmap(range, base - start);
  if (start + room > base + bytes) munmap(reinterpret_cast<void*>(base + bytes), start + room - base - bytes);
  void* at = reinterpret_cast<void*>(base);
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    munmap(at, bytes);
    return nullptr;
  }
  return reinterpret_cast<uint8_t*>(base);
}

void write_header(const ArmRequest& request) {
  arena::Header* header = mapped.header();
  header->magic = arena::kMagic;
  header->version = arena::kVersion;
  header->header_bytes = arena::kPage;
  header->arena_bytes = mapped.bytes;
  header->incarnation = incarnation();
  header->epoch = request.epoch;
  header->pid = static_cast<uint32_t>(getpid());
  header->clock = api.state.clock;
  header->states_offset = mapped.where.states_offset;
  header->strings_offset = mapped.where.strings_offset;
  header->strings_bytes = mapped.where.strings_bytes;
  header->chunks_offset = mapped.where.chunks_offset;
  header->chunk_count = mapped.where.chunk_count;
  header->chunk_bytes = arena::kChunkBytes;
  header->strings_tail.store(arena::kStringAlign, std::memory_order_relaxed);
  header->armed = header->latest = anchor();
  header->recording.store(1, std::memory_order_release);
}

void write_latest() {
  arena::Header* header = mapped.header();
  const uint32_t turn = header->latest_turn.load(std::memory_order_relaxed) | 1;
  header->latest_turn.store(turn, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  header->latest = anchor();
  header->latest_turn.store(turn + 1, std::memory_order_release);
}

// Turns recording off; does not wait.
void turn_off() {
  api.state.armed.store(0, std::memory_order_relaxed);
  api.state.live.store(0, std::memory_order_seq_cst);
}

// Puts private memory where the arena was: whoever still writes there harms nobody.
void cover() {
  mmap(mapped.base, mapped.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void forget_arena() {
  mapped.memory.close();
  mapped = Arena{};
}

// Async-signal-safe: plain stores and system calls.
void in_child() {
  turn_off();
  own_pid.store(getpid(), std::memory_order_relaxed);
  own_incarnation.store(0, std::memory_order_relaxed);
  if (mapped.base) {
    munmap(mapped.base, mapped.bytes);  // nobody else is here to write into it
    forget_arena();
  }
  forget_threads_after_fork();
}

void before_fork() {
  pthread_mutex_lock(&control);
  lock_threads();
  lock_strings();
}

void after_fork_in_parent() {
  unlock_strings();
  unlock_threads();
  pthread_mutex_unlock(&control);
}

void after_fork_in_child() {
  in_child();
  after_fork_in_parent();
}

void prepare_locked() {
  if (prepared) return;
  api.state.clock = choose_clock();
  barriers = register_barriers();
  own_pid.store(getpid(), std::memory_order_relaxed);
  prepared = true;
}

// When this is loaded: a fork while a thread prepares would leave its child a lock that nobody unlocks.
const int fork_handlers = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

bool check(const ArmRequest& request, std::string* why) {
  if (mapped.base) {
    *why = "this process has an arena already";
    return false;
  }
  if (request.arena_bytes > kArenaBytesMax || request.strings_bytes > kStringsBytesMax ||
      arena::layout(request.arena_bytes, arena::round_up(request.strings_bytes, arena::kPage)).chunk_count == 0) {
    *why = "an arena of " + std::to_string(request.arena_bytes) + " bytes with " +
           std::to_string(request.strings_bytes) + " for strings is not possible";
    return false;
  }
  return true;
}

}  // namespace

void prepare() {
  Locked lock;
  prepare_locked();
}

bool arm(const ArmRequest& request, std::string* why) {
  Locked lock;
  prepare_locked();
  const uint64_t bytes = arena::round_up(request.arena_bytes, arena::kChunkBytes);
  if (!check(request, why)) return false;
  const arena::Layout where = arena::layout(bytes, arena::round_up(request.strings_bytes, arena::kPage));
  const int fd = make_memfd(bytes, why);
  if (fd < 0) return false;
  uint8_t* base = map_aligned(fd, bytes);
  // Little more than this: memory is charged to who touches it first, and the reader allocates ahead of the threads.
  if (!base || !make_resident(base, where.strings_offset) || !reset_strings()) {
    if (base) munmap(base, bytes);
    close(fd);
    *why = "there is no memory for an arena of " + std::to_string(bytes) + " bytes, or no room to map it";
    return false;
  }
  mapped = Arena{.base = base,
                 .bytes = bytes,
                 .where = where,
                 .memory = {},
                 .session = ++sessions,
                 .first_hold = next_hold()};
  mapped.memory.take(fd);
  reset_chunks();
  map_first_strings();
  reset_mix();
  write_header(request);
  api.state.live.store(mapped.session, std::memory_order_release);
  api.state.armed.store(request.sources, std::memory_order_release);
  return true;
}

bool make_resident(void* at, uint64_t bytes) {
  const int before = errno;  // of the job's thread
  const bool refused = madvise(at, bytes, MADV_POPULATE_WRITE) != 0 &&
                       (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON);
  errno = before;
  return !refused;
}

void populate() {
  Locked lock;
  if (mapped.base) make_resident(mapped.base, mapped.bytes);
}

int arena_fd() {
  Locked lock;
  return mapped.memory.ours() ? mapped.memory.number() : -1;
}

void set_sources(uint32_t sources) {
  Locked lock;
  if (recording()) api.state.armed.store(sources, std::memory_order_release);
}

void disarm() {
  Locked lock;
  if (!recording()) return;
  turn_off();
  wait_until_quiet();
  count_foreign();
  write_latest();
  mapped.header()->recording.store(0, std::memory_order_release);
}

bool release() {
  disarm();
  Locked lock;
  if (!mapped.base) return true;
  if (any_thread_writes()) return false;
  if (barriers) {
    munmap(mapped.base, mapped.bytes);
  } else {
    cover();  // for good: that the last writer has left is known but for its stores
  }
  forget_strings(/*somebody_may_look=*/!barriers);
  forget_arena();
  return true;
}

void tick() {
  Locked lock;
  if (!recording()) return;
  count_foreign();
  write_latest();
}

Totals totals() {
  Locked lock;
  Totals sum;
  if (!mapped.base) return sum;
  sum.recorded = mapped.header()->recorded.load(std::memory_order_relaxed) + open_events();
  for (uint32_t i = 0; i < arena::kLostReasons; i++) {
    sum.lost[i] = mapped.header()->lost[i].load(std::memory_order_relaxed);
  }
  return sum;
}

Mix mix() {
  Locked lock;
  return mapped.base ? sample_mix() : Mix{};
}

uint64_t incarnation() {
  uint64_t value = own_incarnation.load(std::memory_order_relaxed);
  while (value == 0) {
    uint64_t drawn = 0;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn || drawn == 0) continue;
    own_incarnation.compare_exchange_strong(value, drawn);
    value = own_incarnation.load();
  }
  return value;
}

Anchor anchor() { return read_anchor(api.state.clock, 10); }

bool left_behind() {
  if (getpid() == own_pid.load(std::memory_order_relaxed)) return false;
  in_child();
  return true;
}

}  // namespace profd::recorder
