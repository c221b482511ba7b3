#include "confine.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "words.h"

namespace profd::sampler {
namespace {

constexpr std::uint64_t kPtrace = std::uint64_t{1} << CAP_SYS_PTRACE;
// Of all the one that is worth nothing behind a filter without the four calls. Who does not hold all that another process
// may use is refused by the kernel's check of ptrace(2), which is also that of /proc/PID/fd and mem and of
// pidfd_getfd(2).
constexpr std::uint64_t kGuard = std::uint64_t{1} << CAP_CHOWN;
constexpr unsigned long kCapabilities = 64;
constexpr unsigned long kSetModeFilter = 1;   // SECCOMP_SET_MODE_FILTER
constexpr unsigned long kNewListener = 1 << 3;  // SECCOMP_FILTER_FLAG_NEW_LISTENER
constexpr std::size_t kFilterBytesMax = 4096 * sizeof(sock_filter);  // BPF_MAXINSNS
constexpr std::size_t kCoresMax = 1 << 16;

struct Filter {
  alignas(8) char steps[kFilterBytesMax];
  std::uint32_t bytes = 0;
};

Filter g_asking, g_quiet;

void must(bool done, const char* what) {
  if (!done) fail(what);
}

void hear(void* into, std::size_t bytes) {
  const ssize_t got = read_all(STDIN_FILENO, static_cast<char*>(into), bytes);
  if (got != static_cast<ssize_t>(bytes)) fail("hear its filter", "its daemon has ended");
}

void hear_filter(Filter& filter) {
  hear(&filter.bytes, sizeof filter.bytes);
  if (filter.bytes > sizeof filter.steps) fail("hear its filter", "it is too long");
  hear(filter.steps, filter.bytes);
}

// The secret and the filters, from standard input, which is nothing from then on.
std::uint64_t told() {
  std::uint64_t secret = 0;
  hear(&secret, sizeof secret);
  hear_filter(g_asking);
  hear_filter(g_quiet);
  const int nothing = ::open("/dev/null", O_RDONLY);
  must(nothing >= 0 && ::dup2(nothing, STDIN_FILENO) == STDIN_FILENO, "open /dev/null");
  if (nothing != STDIN_FILENO) ::close(nothing);
  return secret;
}

void limit(int what, rlim_t value) {
  rlimit found{};
  const auto which = static_cast<__rlimit_resource>(what);
  must(::getrlimit(which, &found) == 0, "read its limits");
  if (found.rlim_max < value) value = found.rlim_max;  // RLIM_INFINITY is the greatest
  const rlimit wanted{value, value};
  must(::setrlimit(which, &wanted) == 0, "limit itself");
}

// What counts in RLIMIT_DATA already: under ASan terabytes of shadow, which the limit is not meant for.
rlim_t held_bytes() {
#ifdef __SANITIZE_ADDRESS__
  // "size resident shared text lib data dt", in pages.
  char said[256] = {};
  unsigned long pages = 0;
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  must(file >= 0 && ::read(file, said, sizeof said - 1) > 0, "read its size");
  ::close(file);
  must(std::sscanf(said, "%*s %*s %*s %*s %*s %lu", &pages) == 1, "read its size");
  return static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
#else
  return 0;
#endif
}

void limit_all(rlim_t memory_bytes) {
  // Under pressure the kernel is to take a sampler, never the daemon or the job. Its user may write there, too.
  const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) {
    const ssize_t written = ::write(score, "1000", 4);
    static_cast<void>(written);
    ::close(score);
  }
  limit(RLIMIT_FSIZE, 0);  // what it writes goes through pipes
  // Not the address space: with native frames py-spy maps the libraries of its target, gigabytes of them.
  limit(RLIMIT_DATA, held_bytes() + memory_bytes);
  limit(RLIMIT_CORE, 0);
}

// Another identity for good, with the capabilities of this one for the moment.
void become(long uid, long gid) {
  for (unsigned long each = 0; each < kCapabilities; ++each) {
    // EPERM without CAP_SETPCAP: no_new_privs covers it.
    if (((kPtrace | kGuard) >> each & 1) == 0) ::prctl(PR_CAPBSET_DROP, each, 0, 0, 0);
  }
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (uid != -1) {
    const auto user = static_cast<uid_t>(uid);
    const auto group = static_cast<gid_t>(gid);
    const bool done = ::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && ::setgroups(0, nullptr) == 0 &&
                      ::setresgid(group, group, group) == 0 && ::setresuid(user, user, user) == 0;
    if (!done) {
      char what[96];
      const int error = errno;
      std::snprintf(what, sizeof what, "become uid %ld, gid %ld", uid, gid);
      fail(what, std::strerror(error));
    }
  }
  must(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "set no_new_privs");
}

// The kernel's own answer for this identity with nothing in effect: the rule of process_vm_readv(2).
bool open_to_anybody(long target) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%ld/mem", target);
  const int memory = ::open(path, O_RDONLY | O_CLOEXEC);
  if (memory < 0) return false;
  ::close(memory);
  return true;
}

// These alone, for this process and for whatever it becomes.
bool keep(std::uint64_t kept) {
  if (!hold_capabilities(kept, kept, kept)) return false;
  for (unsigned long each = 0; each < kCapabilities; ++each) {
    if ((kept >> each & 1) != 0 && ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, each, 0, 0) != 0) return false;
  }
  return true;
}

// CAP_SYS_PTRACE alone where it takes that to read the target. False: it is not to be had.
//
// Else the one that guards: at no moment is it without any, so that its user never opens or traces it.
bool give_up_capabilities(long target) {
  constexpr auto kWhat = "give up its capabilities";
  const std::uint64_t held = permitted_capabilities();
  const std::uint64_t guard = held & kGuard, reading = held & kPtrace;
  must(hold_capabilities(guard | reading, 0, 0), kWhat);
  const bool able = open_to_anybody(target);
  must(keep(able ? guard : reading), kWhat);
  return able || reading != 0;
}

bool there(long target) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%ld", target);
  return ::access(path, F_OK) == 0;
}

[[noreturn]] void refuse(long target) {
  char words[192];
  const int bytes = std::snprintf(
      words, sizeof words,
      "Error: Permission denied: the kernel lets uid %lu not read process %ld without CAP_SYS_PTRACE\n",
      static_cast<unsigned long>(::geteuid()), target);
  if (::write(STDERR_FILENO, words, static_cast<std::size_t>(bytes)) < 0) ::_exit(1);
  ::_exit(1);
}

long install(const Filter& filter, unsigned long flags) {
  const sock_fprog program{static_cast<unsigned short>(filter.bytes / sizeof(sock_filter)),
                           reinterpret_cast<sock_filter*>(const_cast<char*>(filter.steps))};
  return ::syscall(SYS_seccomp, kSetModeFilter, flags, &program);
}

// Leave only the calls of a filter, and tell who answers them where its questions are.
void forbid(int conversation) {
  constexpr auto kWhat = "forbid itself system calls (seccomp)";
  long found = -1;
  if (conversation != -1) found = install(g_asking, kNewListener);
  if (found < 0 && g_quiet.bytes > 0) {  // somebody listens already, or nobody is to: threads are not counted
    must(install(g_quiet, 0) == 0, kWhat);
    return;
  }
  must(found >= 0, kWhat);
  char said[64];
  const int bytes = std::snprintf(said, sizeof said, "%d %ld", ::getpid(), found);
  must(::write(conversation, said, static_cast<std::size_t>(bytes)) == bytes, "introduce itself");
  char leave = 0;
  // The exec closes what has to be taken over before.
  if (::read(conversation, &leave, 1) != 1) fail("be watched", "who listens has ended");
  ::close(conversation);
}

}  // namespace

std::uint64_t permitted_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  must(::syscall(SYS_capget, &header, data) == 0, "read its capabilities");
  return data[0].permitted | static_cast<std::uint64_t>(data[1].permitted) << 32;
}

bool hold_capabilities(std::uint64_t permitted, std::uint64_t effective, std::uint64_t inheritable) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  for (int half = 0; half < 2; ++half) {
    data[half].effective = static_cast<std::uint32_t>(effective >> 32 * half);
    data[half].permitted = static_cast<std::uint32_t>(permitted >> 32 * half);
    data[half].inheritable = static_cast<std::uint32_t>(inheritable >> 32 * half);
  }
  return ::syscall(SYS_capset, &header, data) == 0;
}

void enter(const char* group) {
  if (*group == '\0') return;
  static char path[kPageBytes], what[kPageBytes + 64];
  const int bytes = std::snprintf(path, sizeof path, "%s/cgroup.procs", group);
  const int processes = bytes < static_cast<int>(sizeof path) ? ::open(path, O_WRONLY | O_CLOEXEC) : -1;
  if (processes < 0 || ::write(processes, "0", 1) != 1) {
    const int error = errno;
    std::snprintf(what, sizeof what, "join the cgroup %s", group);
    fail(what, std::strerror(error));
  }
  ::close(processes);
}

void stay_on(const char* cores) {
  static unsigned long set[kCoresMax / 8 / sizeof(unsigned long)];
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  if (*cores == '\0' && ::sched_getaffinity(0, sizeof set, reinterpret_cast<cpu_set_t*>(set)) != 0) return;
  while (*cores != '\0') {
    char* end = nullptr;
    const unsigned long core = std::strtoul(cores, &end, 10);
    if (end == cores) fail("read its arguments", "cores are numbers with commas");
    if (core < kCoresMax) set[core / kBits] |= 1UL << core % kBits;
    cores = *end == ',' ? end + 1 : end;
  }
  // Where it fails, all of them were taken from the daemon since it began: what is left is as good.
  ::sched_setaffinity(0, sizeof set, reinterpret_cast<const cpu_set_t*>(set));
}

std::uint64_t confine(char** arguments, void (*prepare)(pid_t target)) {
  const long parent = number(arguments[0]), memory_bytes = number(arguments[1]), target = number(arguments[2]);
  const long uid = number(arguments[3]), gid = number(arguments[4]), listener = number(arguments[5]);
  // Who listens may have ended; a write then says so.
  std::signal(SIGPIPE, SIG_IGN);
  enter(arguments[7]);
  stay_on(arguments[6]);
  const std::uint64_t secret = told();
  limit_all(static_cast<rlim_t>(memory_bytes));
  must(::chdir("/") == 0, "go to /");
  become(uid, gid);
  if (!give_up_capabilities(target) && there(target)) refuse(target);
  std::signal(SIGINT, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGINT, 0, 0, 0);  // a change of identity clears it
  if (::getppid() != parent) ::_exit(1);       // it died before the line above
  std::signal(SIGXFSZ, SIG_DFL);               // else py-spy fails in other words
  if (prepare != nullptr) prepare(static_cast<pid_t>(target));
  forbid(static_cast<int>(listener));
  return secret;
}

}  // namespace profd::sampler
