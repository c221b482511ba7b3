// profd-dropper UID GID DESCRIPTORS: closes connections of one user that nobody reads, and sockets of the daemon's.
//
// Why: who closes the last descriptor of a socket closes what lies in its queue, and may wait for ever: a file of a FUSE
// file system, in the queue of a socket that was passed (docs/decisions/0051-droppers.md). One thread closes. Another
// one takes what the daemon hands over, waits for nobody, and closes at once what surely holds no descriptor. So what
// the first waits for holds up nothing; what comes meanwhile is held, and each of it holds a descriptor in flight,
// of which its sender has RLIMIT_NOFILE.
//
// Descriptor 0 is the daemon's (SEQPACKET). First comes the filter of its system calls, then, a byte each:
//   d  and one descriptor: to be closed, with whatever is queued in it
//   g  the daemon has closed its copy of what came before
//   p  answered with two numbers: how many have come to be closed, and how many are closed
// What came is closed when the next word has come, whichever: only then is our copy the last. "f" is said where there is
// no room for more, and nothing is taken until there is. Its end is ours; what is held goes with it.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#include "confine.h"
#include "empty.h"
#include "waits.h"

namespace profd::porter {
namespace {

constexpr int kControl = 0;
constexpr std::uint32_t kHeldMax = 1 << 16;  // DROPPER_DESCRIPTORS_MAX
constexpr rlim_t kOthers = 16;               // descriptors that are not held
constexpr long kFilterBytesMax = 4096;
constexpr int kFullMs = 100;

char g_filter[kFilterBytesMax] __attribute__((aligned(8)));
long g_filter_bytes = 0;

int g_held[kHeldMax];  // a ring
std::uint32_t g_room = 0;
std::uint32_t g_came = 0;                // the receiver's
std::atomic<std::uint32_t> g_closed{0};  // the closer's
sem_t g_more;

int g_last = -1;  // the daemon may still have its copy

void filter() {
  if (!filter_calls(g_filter, g_filter_bytes)) ::_exit(5);
}

// --- the closer ---

void* close_all(void*) {
  filter();
  interrupt_waits(true);
  for (std::uint32_t at = 0;; ++at) {
    if (::sem_trywait(&g_more) != 0) {
      interrupt_waits(false);
      while (::sem_wait(&g_more) != 0) {
      }
      interrupt_waits(true);
    }
    ::close(g_held[at % kHeldMax]);  // which may wait for what is queued in it
    g_closed.store(at + 1);
  }
}

bool start_closer() {
  pthread_attr_t attributes;
  pthread_t closer;
  return ::sem_init(&g_more, 0, 0) == 0 && ::pthread_attr_init(&attributes) == 0 &&
         ::pthread_attr_setstacksize(&attributes, 128 * 1024) == 0 &&
         ::pthread_create(&closer, &attributes, close_all, nullptr) == 0;
}

// --- the receiver ---

std::uint32_t held() { return g_came - g_closed.load(); }

void close_last() {
  if (g_last < 0) return;
  const int fd = g_last;
  g_last = -1;
  if (make_empty(fd)) {
    ::close(fd);
    return;
  }
  g_held[g_came++ % kHeldMax] = fd;
  ::sem_post(&g_more);
}

void answer() {
  char said[32];
  const int bytes = std::snprintf(said, sizeof said, "%u %u", g_came, g_closed.load());
  ::send(kControl, said, static_cast<std::size_t>(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
}

// To receive one more would drop it here.
void wait_for_room() {
  while (held() >= g_room) {
    ::send(kControl, "f", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    pollfd asked{kControl, 0, 0};
    if (::poll(&asked, 1, kFullMs) > 0) ::_exit(0);  // the daemon wants us no more, or is gone
  }
}

[[noreturn]] void serve() {
  for (;;) {
    wait_for_room();
    char word = 0;
    iovec into{&word, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &into;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t bytes = ::recvmsg(kControl, &message, MSG_CMSG_CLOEXEC);
    if (bytes < 0 && errno == EINTR) continue;
    close_last();
    if (bytes <= 0) ::_exit(0);
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      std::memcpy(&g_last, CMSG_DATA(header), sizeof(int));
    }
    if (word == 'p') answer();
  }
}

}  // namespace
}  // namespace profd::porter

int main(int count, char** words) {
  using namespace profd::porter;
  if (count != 4) return 2;
  if (!drop_privileges(std::atol(words[1]), std::atol(words[2]), std::strtoul(words[3], nullptr, 10))) return 3;
  g_filter_bytes = ::recv(kControl, g_filter, sizeof g_filter, 0);
  rlimit descriptors{};
  if (g_filter_bytes <= 0 || ::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return 4;
  g_filter_bytes -= g_filter_bytes % 8;
  if (descriptors.rlim_cur <= kOthers) return 4;
  g_room = static_cast<std::uint32_t>(std::min<rlim_t>(descriptors.rlim_cur - kOthers, kHeldMax));
  sigset_t alarms;
  ::sigemptyset(&alarms);
  ::sigaddset(&alarms, SIGALRM);
  if (!prepare_waits() || !start_closer()) return 4;
  if (::pthread_sigmask(SIG_BLOCK, &alarms, nullptr) != 0) return 4;  // they are the closer's
  filter();
  serve();
}
