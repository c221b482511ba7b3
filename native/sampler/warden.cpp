#include "warden.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "confine.h"
#include "words.h"

namespace profd::sampler {
namespace {

// Numbers and structures are the kernel's: headers of older systems lack some.
constexpr std::uint64_t kRights = std::uint64_t{1} << CAP_SYS_PTRACE | std::uint64_t{1} << CAP_DAC_READ_SEARCH;
constexpr long kPidfdOpen = 434, kOpenat2 = 437, kPidfdGetfd = 438;
constexpr unsigned long kReceive = 0xC0502100, kSend = 0xC0182101, kAdd = 0x40182103, kValid = 0x40082102;
constexpr std::uint32_t kContinue = 1;         // SECCOMP_USER_NOTIF_FLAG_CONTINUE
constexpr std::uint64_t kResolve = 0x02 | 0x10;  // RESOLVE_NO_MAGICLINKS, RESOLVE_IN_ROOT
constexpr std::size_t kMappingsBytesMax = 16 << 20;
constexpr int kThreadsOfSampler = 16;  // limits.SAMPLER_THREADS_MAX

struct Question {  // seccomp_notif
  std::uint64_t id;
  std::uint32_t thread, flags;
  std::int32_t call;
  std::uint32_t machine;
  std::uint64_t instruction;
  std::uint64_t arguments[6];
};
static_assert(sizeof(Question) == 80);

struct Answer {  // seccomp_notif_resp
  std::uint64_t id;
  std::int64_t value;
  std::int32_t error;
  std::uint32_t flags;
};
static_assert(sizeof(Answer) == 24);

struct Addition {  // seccomp_notif_addfd
  std::uint64_t id;
  std::uint32_t flags, file, at, file_flags;
};
static_assert(sizeof(Addition) == 24);

struct How {  // open_how
  std::uint64_t flags, mode, resolve;
};

struct Inode {
  dev_t device = 0;
  ino_t number = 0;
};

pid_t g_target = 0;
int g_listener = -1;
int g_root = -1;
int g_started = 0;  // threads
char* g_mappings = nullptr;  // /proc/PID/maps, as it was last
std::size_t g_mappings_bytes = 0;

int take(pid_t process, int descriptor) {
  const auto holder = static_cast<int>(::syscall(kPidfdOpen, process, 0));
  const auto taken = static_cast<int>(::syscall(kPidfdGetfd, holder, descriptor, 0));
  ::close(holder);
  return taken;
}

// ENOENT: who asked is gone. False: nothing can be answered any more.
bool said_or_gone(long result) { return result >= 0 || errno == ENOENT; }

bool answer(const Question& question, std::int64_t value, std::int32_t error, std::uint32_t flags) {
  Answer said{question.id, value, error, flags};
  return said_or_gone(::ioctl(g_listener, kSend, &said));
}

bool let_go_on(const Question& question) { return answer(question, 0, 0, kContinue); }

// The string at an address of a process, "" where there is none. Longer ones are none.
const char* text_of(pid_t process, std::uint64_t at) {
  static char text[2 * kPageBytes];
  std::size_t have = 0;
  while (have < kPageBytes) {
    // The next page may not be there.
    const std::size_t got = read_memory(process, at + have, text + have, kPageBytes - (at + have) % kPageBytes);
    if (got == 0) return "";
    if (std::memchr(text + have, '\0', got) != nullptr) return text;
    have += got;
  }
  return "";
}

void read_mappings() {
  g_mappings_bytes = 0;
  if (g_mappings == nullptr) {
    void* const room =
        ::mmap(nullptr, kMappingsBytesMax + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return;
    g_mappings = static_cast<char*>(room);
  }
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/maps", g_target);
  const int maps = ::open(path, O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  const ssize_t bytes = read_all(maps, g_mappings, kMappingsBytesMax);
  ::close(maps);
  g_mappings_bytes = bytes < 0 ? 0 : static_cast<std::size_t>(bytes);
  g_mappings[g_mappings_bytes] = '\0';  // numbers end there at the latest
}

// One line, `start-end r-xp offset 08:01 1234      /path`: the inode, if it is a file of that path.
bool is_of(const char* line, const char* stop, const char* path, Inode& found) {
  const char* at = line;
  for (int fields = 3; fields > 0; --fields) {
    at = static_cast<const char*>(std::memchr(at, ' ', static_cast<std::size_t>(stop - at)));
    if (at == nullptr) return false;
    ++at;
  }
  char* end = nullptr;
  const auto major = static_cast<unsigned>(std::strtoul(at, &end, 16));
  if (*end != ':') return false;
  const auto minor = static_cast<unsigned>(std::strtoul(end + 1, &end, 16));
  const std::uint64_t inode = std::strtoull(end, &end, 10);
  const char* name = end;
  while (name < stop && *name == ' ') ++name;
  const std::size_t length = std::strlen(path);
  if (inode == 0 || name == end || static_cast<std::size_t>(stop - name) != length) return false;
  if (std::memcmp(name, path, length) != 0) return false;
  found = {::makedev(major, minor), static_cast<ino_t>(inode)};
  return true;
}

// The last one of that path. Of all line ends the kernel escapes \n in names.
bool find_mapping(const char* path, Inode& found) {
  bool is = false;
  const char* const end = g_mappings + g_mappings_bytes;
  for (const char* line = g_mappings; line < end;) {
    const auto* stop = static_cast<const char*>(std::memchr(line, '\n', static_cast<std::size_t>(end - line)));
    if (stop == nullptr) stop = end;
    is = is_of(line, stop, path, found) || is;
    line = stop + 1;
  }
  return is;
}

int open_mapped(const char* path, const Inode& inode) {
  char inside[64];
  std::snprintf(inside, sizeof inside, "/proc/%d/root", g_target);
  if (g_root < 0) g_root = ::open(inside, O_PATH | O_CLOEXEC);
  const How how{O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0, kResolve};
  const auto file = static_cast<int>(::syscall(kOpenat2, g_root, path, &how, sizeof how));
  if (file < 0) return -1;
  struct stat found {};
  if (::fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_dev == inode.device &&
      found.st_ino == inode.number) {
    return file;
  }
  ::close(file);
  return -1;
}

// Open what the target has mapped from there; -1 for everything else.
int file_of(const char* path) {
  char inside[64];
  const int length = std::snprintf(inside, sizeof inside, "/proc/%d/root/", g_target);
  if (std::strncmp(path, inside, static_cast<std::size_t>(length)) == 0) path += length - 1;
  if (*path != '/' || std::strncmp(path, "/proc/", 6) == 0) return -1;
  Inode inode;
  if (!find_mapping(path, inode)) {  // new, or loaded since
    read_mappings();
    if (!find_mapping(path, inode)) return -1;
  }
  return open_mapped(path, inode);
}

// The answer of stat(2), but for the times. Where it cannot be written, nothing is: who asked gave an address that is none.
void put_stat(const Question& question, std::uint64_t at, int file) {
  struct stat found {}, said {};
  ::fstat(file, &found);
  said.st_dev = found.st_dev;
  said.st_ino = found.st_ino;
  said.st_nlink = found.st_nlink;
  said.st_mode = found.st_mode;
  said.st_uid = found.st_uid;
  said.st_gid = found.st_gid;
  said.st_size = found.st_size;
  said.st_blksize = found.st_blksize;
  said.st_blocks = found.st_blocks;
  const iovec here{&said, sizeof said};
  const iovec there{reinterpret_cast<void*>(at), sizeof said};
  const ssize_t written = ::process_vm_writev(static_cast<pid_t>(question.thread), &here, 1, &there, 1, 0);
  static_cast<void>(written);
}

bool decide_trace(const Question& question) {
  char path[96];
  std::snprintf(path, sizeof path, "/proc/%d/task/%llu", g_target,
                static_cast<unsigned long long>(question.arguments[1]));
  return ::access(path, F_OK) == 0 ? let_go_on(question) : answer(question, 0, -EPERM, 0);
}

// `place`: of the path among the arguments; behind it the room for the answer, where it `looks`.
bool decide_file(const Question& question, int place, bool looks) {
  const int file = file_of(text_of(static_cast<pid_t>(question.thread), question.arguments[place]));
  if (file < 0) return let_go_on(question);  // with its own rights, whatever the path is by then
  bool goes_on = true;
  if (looks) {
    std::uint64_t id = question.id;
    const int valid = ::ioctl(g_listener, kValid, &id);  // it waits, so the number is its
    goes_on = said_or_gone(valid);
    if (valid == 0) {
      put_stat(question, question.arguments[place + 1], file);
      goes_on = answer(question, 0, 0, 0);
    }
  } else {
    Addition how{question.id, 0, static_cast<std::uint32_t>(file), 0, O_CLOEXEC};
    const int given = ::ioctl(g_listener, kAdd, &how);
    goes_on = given >= 0 ? answer(question, given, 0, 0) : errno == ENOENT;
  }
  ::close(file);
  return goes_on;
}

// False: nothing is answered any more.
bool decide(const Question& question) {
  switch (question.call) {
    case SYS_clone:
      return ++g_started <= kThreadsOfSampler && let_go_on(question);
    case SYS_ptrace:
      return decide_trace(question);
#ifdef SYS_open
    case SYS_open:
      return decide_file(question, 0, false);
    case SYS_stat:
      return decide_file(question, 0, true);
#endif
    case SYS_openat:
      return decide_file(question, 1, false);
    case SYS_newfstatat:
      return decide_file(question, 1, true);
    default:
      return false;  // the filter asks nothing else
  }
}

void serve() {
  pollfd ready{g_listener, POLLIN, 0};
  for (;;) {
    const int count = ::poll(&ready, 1, -1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || (ready.revents & (POLLHUP | POLLERR)) != 0) return;
    Question question{};
    if (::ioctl(g_listener, kReceive, &question) < 0) {
      if (errno == ENOENT || errno == EINTR) continue;  // who asked is gone
      return;
    }
    if (!decide(question)) return;
  }
}

}  // namespace

int be_warden(char** arguments) {
  const long parent = number(arguments[0]);
  g_target = static_cast<pid_t>(number(arguments[1]));
  const int conversation = static_cast<int>(number(arguments[2]));
  enter(arguments[4]);
  stay_on(arguments[3]);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  const std::uint64_t held = permitted_capabilities() & kRights;
  if (!hold_capabilities(held, held, 0)) fail("give up its capabilities");
  char said[64];
  const ssize_t bytes = ::read(conversation, said, sizeof said - 1);
  if (::getppid() != parent || bytes <= 0) return 0;
  said[bytes] = '\0';
  int sampler = 0, descriptor = 0;
  if (std::sscanf(said, "%d %d", &sampler, &descriptor) != 2) return 1;
  g_listener = take(sampler, descriptor);
  if (g_listener < 0 || ::write(conversation, "+", 1) != 1) return 1;
  ::close(conversation);
  serve();
  return 0;
}

}  // namespace profd::sampler
