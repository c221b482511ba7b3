// See guarded.h. Everything between here and `ask` runs in a child that shares our memory and descriptors, on a stack of
// its own and with our thread's TLS: raw system calls only, no libc, no errno, nothing that allocates. So this file is
// compiled freestanding, without sanitizers (whose runtime keeps what it knows of a stack in the TLS of its thread).
#include "guarded.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/sched.h>
#include <map>
#include <mutex>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace profd::host {
namespace {

constexpr int kIdle = 8;          // slots that are kept
// Children that could not be killed: of one user, of all, and what those with less than an equal part come to. Root's
// are counted apart, as are those of who runs the daemon (fairness/shares.py).
constexpr std::size_t kAbandonedPerUser = 32;
constexpr std::size_t kAbandoned = 256;
constexpr std::size_t kAbandonedMax = 4 * kAbandoned;
constexpr double kRunning = 10;   // times longer may it take when it runs: a large file, or a busy host
constexpr int kRunningMs = 100;   // and so long in any case
constexpr int kKillMs = 50;
constexpr std::int64_t kQuickNs = 2'000'000;  // answers within this are nobody's matter
constexpr std::size_t kKept = 1 << 20;  // of a buffer, between calls
constexpr int kPidfd = 3;         // P_PIDFD; older headers have none
constexpr unsigned kSignals = 8;  // bytes of the kernel's signal set

#if defined(__x86_64__)
long call(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
  long result;
  register long r10 asm("r10") = d;
  asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

// clone(2); the child calls entry(slot) on its stack and never returns.
long spawn(unsigned long flags, char* stack, int* pidfd, void (*entry)(Slot*), Slot* slot) {
  long result;
  register long r10 asm("r10") = 0;
  register long r8 asm("r8") = 0;
  register void (*r12)(Slot*) asm("r12") = entry;
  register Slot* r13 asm("r13") = slot;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %%r13, %%rdi\n\t"
      "call *%%r12\n\t"
      "ud2\n"
      "1:"
      : "=a"(result)
      : "a"(static_cast<long>(__NR_clone)), "D"(flags), "S"(stack), "d"(pidfd), "r"(r10), "r"(r8), "r"(r12), "r"(r13)
      : "rcx", "r11", "memory", "cc");
  return result;
}
#elif defined(__aarch64__)  // never ran
long call(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
}

long spawn(unsigned long flags, char* stack, int* pidfd, void (*entry)(Slot*), Slot* slot) {
  register long x8 asm("x8") = __NR_clone;
  register long x0 asm("x0") = static_cast<long>(flags);
  register char* x1 asm("x1") = stack;
  register int* x2 asm("x2") = pidfd;
  register long x3 asm("x3") = 0;
  register long x4 asm("x4") = 0;
  register void (*x19)(Slot*) asm("x19") = entry;
  register Slot* x20 asm("x20") = slot;
  asm volatile(
      "svc 0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "mov x0, x20\n\t"
      "blr x19\n\t"
      "brk 1\n"
      "1:"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x19), "r"(x20)
      : "memory", "cc");
  return x0;
}
#else
#error "clone(2) is written for x86_64 and aarch64"
#endif

long opened(const char* path, long flags) {
  return call(__NR_openat, AT_FDCWD, reinterpret_cast<long>(path), flags | O_CLOEXEC);
}

// The parent closes what is `held` when the child was killed. A kill between the two lines of each loses a descriptor;
// the reverse order could close one of somebody else.
void shut(Slot* slot, long fd) {
  slot->held = -1;
  call(__NR_close, fd);
}

long read_file(Slot* slot, const Request& request, char* into) {
  const long fd = opened(request.path, O_RDONLY | O_NONBLOCK);
  if (fd < 0) return fd;
  slot->held = static_cast<int>(fd);
  long have = 0;
  while (have < static_cast<long>(request.limit)) {
    const long part = call(__NR_read, fd, reinterpret_cast<long>(into + have), request.limit - have);
    if (part < 0) have = part;
    if (part <= 0) break;
    have += part;
    if (request.kind == Kind::Record) break;
  }
  shut(slot, fd);
  return have;
}

struct Entry {  // linux_dirent64
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

// Both strings with their ends, or 0 where they find no room.
long one_link(long folder, const char* name, char* into, long room) {
  long length = 0;
  while (name[length] != 0) ++length;
  if (length + 3 >= room) return 0;
  for (long at = 0; at <= length; ++at) into[at] = name[at];
  const long target = call(__NR_readlinkat, folder, reinterpret_cast<long>(name),
                           reinterpret_cast<long>(into + length + 1), room - length - 2);
  into[length + 1 + (target < 0 ? 0 : target)] = 0;
  return length + 2 + (target < 0 ? 0 : target);
}

long read_links(Slot* slot, const Request& request, char* into) {
  const long fd = opened(request.path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return fd;
  slot->held = static_cast<int>(fd);
  long have = 0;
  for (bool full = false; !full;) {
    const long bytes = call(__NR_getdents64, fd, reinterpret_cast<long>(slot->scratch), sizeof slot->scratch);
    if (bytes <= 0) break;
    for (long at = 0; at < bytes && !full;) {
      const auto* entry = reinterpret_cast<const Entry*>(slot->scratch + at);
      at += entry->length;
      if (entry->name[0] == '.') continue;
      const long more = one_link(fd, entry->name, into + have, static_cast<long>(request.limit) - have);
      full = more == 0;
      have += more;
    }
  }
  shut(slot, fd);
  return have;
}

long read_clock(const Request& request, char* into) {
  if (request.limit < sizeof(std::int64_t)) return -EINVAL;
  timespec now{};
  const long said = call(__NR_clock_gettime, CLOCK_REALTIME, reinterpret_cast<long>(&now));
  if (said < 0) return said;
  const std::int64_t ns = static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  for (unsigned at = 0; at < sizeof ns; ++at) into[at] = reinterpret_cast<const char*>(&ns)[at];
  return sizeof ns;
}

// A read of one byte is never allowed. Where nobody has that memory any more, the kernel says "nothing" before it comes
// to see that. It takes the memory for a moment, and whoever lets go of it last gives it back: hence a child.
long in_use(long pagemap) {
  char byte;
  const long said = call(__NR_pread64, pagemap, reinterpret_cast<long>(&byte), 1, 0);
  return said == -EINVAL || said > 0 ? 1 : said;
}

long answered(Slot* slot, const Request& request) {
  char* into = slot->buffer + request.offset;
  switch (request.kind) {
    case Kind::Read:
    case Kind::Record:
      return read_file(slot, request, into);
    case Kind::Link:
      return call(__NR_readlinkat, AT_FDCWD, reinterpret_cast<long>(request.path), reinterpret_cast<long>(into),
                  request.limit);
    case Kind::Open:
      return opened(request.path, request.limit);
    case Kind::Links:
      return read_links(slot, request, into);
    case Kind::Clock:
      return read_clock(request, into);
    case Kind::InUse:
      return in_use(request.limit);
  }
  return -EINVAL;
}

std::int64_t clock_ns() {
  timespec now{};
  call(__NR_clock_gettime, CLOCK_MONOTONIC, reinterpret_cast<long>(&now));
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void answer_all(Slot* slot) {
  bool gone = false;
  std::int64_t before = clock_ns(), most = 0;
  slot->began_ns = before;
  for (int at = 0; at < slot->count; ++at) {
    Request& request = slot->requests[at];
    request.answer = gone ? -ECANCELED : answered(slot, request);
    gone = gone || (request.kind == Kind::InUse && request.answer == 0);
    const std::int64_t now = clock_ns();
    if (now - before > most) {
      most = now - before;
      slot->longest = at;
    }
    before = now;
  }
  slot->ended_ns = before;
}

void in_child(Slot* slot) {
  // It must not outlive the daemon, whose sockets it has. Where that has ended before this call, nobody would send it.
  call(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL);
  if (call(__NR_getppid) == slot->parent) answer_all(slot);
  for (;;) call(__NR_exit, 0);
}

// ---- the parent ----

std::mutex g_lock;
std::vector<Slot*> g_idle;
struct Abandoned {
  Slot* slot;
  int pidfd;
  std::uint32_t owner;  // of whom it could not say what it was asked
};
std::vector<Abandoned> g_abandoned;

bool ended(int pidfd, int milliseconds) {
  pollfd waiting{pidfd, POLLIN, 0};
  return ::poll(&waiting, 1, milliseconds) > 0;
}

void reap(int pidfd) {
  siginfo_t how;
  // __WALL: a child without an exit signal is not waited for otherwise, and by nobody else.
  while (call(__NR_waitid, kPidfd, pidfd, reinterpret_cast<long>(&how), WEXITED | __WALL) == -EINTR) {
  }
  ::close(pidfd);
}

void drop_descriptors(Slot* slot) {
  if (slot->held >= 0) ::close(slot->held);
  slot->held = -1;
  for (int at = 0; at < slot->count; ++at) {
    Request& request = slot->requests[at];
    if (request.kind == Kind::Open && request.answer >= 0) {
      ::close(static_cast<int>(request.answer));
      request.answer = -EINPROGRESS;
    }
  }
}

void free_slot(Slot* slot) {
  ::munmap(slot->stack, kStackBytes);
  ::munmap(slot->buffer, slot->room);
  delete slot;
}

char* mapped(std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

// Those that could not be killed when they were given up, and have ended since. With the lock held; one system call
// where none has.
void sweep() {
  std::vector<pollfd> ends;
  for (const Abandoned& one : g_abandoned) ends.push_back({one.pidfd, POLLIN, 0});
  if (::poll(ends.data(), ends.size(), 0) <= 0) return;
  for (std::size_t at = ends.size(); at-- > 0;) {
    if (ends[at].revents == 0) continue;
    const Abandoned gone = g_abandoned[at];
    reap(gone.pidfd);
    drop_descriptors(gone.slot);
    free_slot(gone.slot);
    g_abandoned[at] = g_abandoned.back();
    g_abandoned.pop_back();
  }
}

bool reserved(std::uint32_t owner) { return owner == 0 || owner == ::geteuid(); }

// Whose process it waits for: of the first question that has no answer.
int unanswered(const Slot* slot) {
  int at = 0;
  while (at + 1 < slot->count && slot->requests[at].answer != -EINPROGRESS) ++at;
  return at;
}

std::uint32_t kept_by(const Slot* slot) { return slot->requests[unanswered(slot)].owner; }

// What a file of a child of ours says, with an end; "" where it cannot be read. It execs nothing, so that it answers.
template <std::size_t N>
const char* said_of(long pid, const char* name, char (&text)[N]) {
  char path[48];
  ::snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = fd < 0 ? 0 : ::read(fd, text, N - 1);
  if (fd >= 0) ::close(fd);
  text[bytes < 0 ? 0 : bytes] = 0;
  return text;
}

// Does it run, or want to?
bool runs(long pid) {
  char text[128];
  const char* behind = ::strrchr(said_of(pid, "stat", text), ')');
  return behind != nullptr && ::strncmp(behind, ") R", 3) == 0;
}

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// It wants to, and had a core for less than half of its time. (Of a wait that goes on the kernel says nothing.)
bool starved(long pid, std::int64_t lived_ns) {
  char text[96];
  long long ran_ns = 0;
  return runs(pid) && ::sscanf(said_of(pid, "schedstat", text), "%lld", &ran_ns) == 1 && 2 * ran_ns < lived_ns;
}

// How long the child waited for what it asked: neither had a core nor wanted one. Of a child that has not been reaped. A
// kernel that does not count (CONFIG_SCHED_INFO) says that it never ran: then nothing is held against anybody.
std::int64_t waited_ns(const Slot* slot, long pid) {
  if (slot->began_ns == 0) return 0;
  const std::int64_t lived = (slot->ended_ns != 0 ? slot->ended_ns : now_ns()) - slot->began_ns;
  if (lived < kQuickNs) return 0;
  char text[96];
  long long ran = 0, queued = 0;
  if (::sscanf(said_of(pid, "schedstat", text), "%lld %lld", &ran, &queued) != 2 || ran == 0) return 0;
  const std::int64_t waited = lived - ran - queued;
  return waited < kQuickNs ? 0 : waited;
}

bool in_time(int pidfd, long pid, double seconds) {
  const int slice = static_cast<int>(seconds * 1000) + 1;
  for (int waited = 0; waited < std::max(static_cast<int>(kRunning * slice), kRunningMs); waited += slice) {
    if (ended(pidfd, slice)) return true;
    if (!runs(pid)) return false;
  }
  return false;
}

}  // namespace

bool used_up(std::uint32_t owner) {
  const std::lock_guard<std::mutex> held(g_lock);
  if (g_abandoned.empty()) return false;
  sweep();
  std::map<std::uint32_t, std::size_t> by_user;
  std::size_t all = 0;
  for (const Abandoned& one : g_abandoned) {
    ++by_user[one.owner];
    if (!reserved(one.owner)) ++all;
  }
  const std::size_t own = by_user[owner];
  if (own >= kAbandonedPerUser) return true;
  if (reserved(owner) || all < kAbandoned) return false;
  std::size_t users = 0;
  for (const auto& [uid, count] : by_user) users += !reserved(uid);
  return own >= kAbandoned / users || all >= kAbandonedMax;
}

Slot* take_slot(std::size_t room) {
  Slot* slot = nullptr;
  {
    const std::lock_guard<std::mutex> held(g_lock);
    if (!g_idle.empty()) {
      slot = g_idle.back();
      g_idle.pop_back();
    }
  }
  if (slot != nullptr && slot->room < room) {
    free_slot(slot);
    slot = nullptr;
  }
  if (slot == nullptr) {
    slot = new Slot();
    slot->room = room < kKept ? kKept : room;
    slot->stack = mapped(kStackBytes);
    slot->buffer = mapped(slot->room);
    if (slot->stack == nullptr || slot->buffer == nullptr) {
      if (slot->stack != nullptr) ::munmap(slot->stack, kStackBytes);
      if (slot->buffer != nullptr) ::munmap(slot->buffer, slot->room);
      delete slot;
      return nullptr;
    }
  }
  slot->held = -1;
  slot->count = 0;
  return slot;
}

void give_slot(Slot* slot) {
  if (slot->room > kKept) {
    free_slot(slot);
    return;
  }
  const std::lock_guard<std::mutex> held(g_lock);
  if (g_idle.size() < kIdle) {
    g_idle.push_back(slot);
  } else {
    free_slot(slot);
  }
}

Outcome ask(Slot* slot, double seconds, bool& reusable) {
  reusable = true;
  slot->parent = static_cast<int>(::getpid());
  slot->began_ns = slot->ended_ns = 0;
  slot->longest = 0;
  slot->waited_ns = 0;
  for (int at = 0; at < slot->count; ++at) slot->requests[at].answer = -EINPROGRESS;
  // Its handlers are ours, on a stack that is not theirs: no signal but SIGKILL reaches it.
  std::uint64_t all = ~0ULL, before = 0;
  int pidfd = -1;
  call(__NR_rt_sigprocmask, SIG_BLOCK, reinterpret_cast<long>(&all), reinterpret_cast<long>(&before), kSignals);
  const long pid = spawn(CLONE_VM | CLONE_FILES | CLONE_PIDFD, slot->stack + kStackBytes, &pidfd, in_child, slot);
  call(__NR_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&before), 0, kSignals);
  if (pid < 0) {
    for (int at = 0; at < slot->count; ++at) slot->requests[at].answer = pid;
    return Outcome::NoChild;
  }
  const std::int64_t began = now_ns();
  const bool late = !in_time(pidfd, pid, seconds);
  const Outcome missed = late && starved(pid, now_ns() - began) ? Outcome::Starved : Outcome::GivenUp;
  slot->waited_ns = waited_ns(slot, pid);
  if (slot->ended_ns == 0) slot->longest = unanswered(slot);
  if (late) call(__NR_pidfd_send_signal, pidfd, SIGKILL);
  if (!late || ended(pidfd, kKillMs)) {
    reap(pidfd);
    // Whoever was late and has everything has answered: on a busy host a child ends between the last wait for it and the
    // look at its state. One that was in time was killed by somebody (the kernel, when memory ends) if it has not.
    const bool whole = slot->count == 0 || slot->requests[slot->count - 1].answer != -EINPROGRESS;
    if (!whole) drop_descriptors(slot);
    return whole ? Outcome::Answered : missed;
  }
  const std::lock_guard<std::mutex> held(g_lock);
  g_abandoned.push_back({slot, pidfd, kept_by(slot)});
  reusable = false;
  return missed;
}

}  // namespace profd::host
