// profd-porter UID GID DESCRIPTORS: relays connections of one user's agents to the daemon.
//
// Why: who closes the last descriptor of a socket that lingers, or any of a FUSE or network file system, waits for
// somebody else. The daemon is nobody who may wait (docs/decisions/0013-porters.md). This process may: it is killed
// when it does not answer, and its agents come back.
//
// Descriptor 0 is the daemon's (SEQPACKET). First comes the filter of its system calls, then, a byte each:
//   c  and two descriptors: a connection of packets, and the end of a pair to relay it to
//   s  and two: one of bytes
//   g  the daemon has closed its copies of what came before
//   p  answered once nothing is left to be done: with b while there are connections, else with p
// What came with descriptors is done when the next word has come, whichever: only then are our copies the last.
// Its end is ours. Nothing else is opened, and nothing that is read is understood.
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "confine.h"
#include "relay.h"
#include "stream.h"
#include "waits.h"

namespace profd::porter {
namespace {

constexpr int kControl = 0;
constexpr int kRelaysMax = 4096;  // AGENTS_MAX
constexpr int kEvents = 64;
constexpr std::uint32_t kControlEvent = kRelaysMax;
constexpr long kFilterBytesMax = 4096;
constexpr int kSent = 2;  // descriptors of one message

Relay g_relays[kRelaysMax];
int g_free[kRelaysMax];
int g_free_count = 0;
int g_used = 0;  // slots that ever were: memory beyond is never touched
int g_queue[kRelaysMax];  // a ring
int g_queue_begin = 0, g_queue_count = 0;
int g_epoll = -1;
int g_asked = 0;  // how often whether we answer

// The last word with descriptors: the daemon may still have its copies.
struct Word {
  char word = 0;
  std::size_t count = 0;
  int fds[kSent];
} g_held;

void enqueue(int at) {
  Relay& relay = g_relays[at];
  if (relay.connection < 0 || relay.queued) return;
  relay.queued = true;
  g_queue[(g_queue_begin + g_queue_count++) % kRelaysMax] = at;
}

bool watch(int fd, std::uint32_t events, std::uint32_t number) {
  epoll_event event{};
  event.events = events;
  event.data.u32 = number;
  return ::epoll_ctl(g_epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

void end(int at) {
  Relay& relay = g_relays[at];
  const int connection = relay.connection;
  const int pair = relay.pair;
  relay = Relay();
  g_free[g_free_count++] = at;
  // While the daemon has a copy, an event would come behind the close.
  ::epoll_ctl(g_epoll, EPOLL_CTL_DEL, connection, nullptr);
  ::close(pair);
  ::close(connection);  // which may wait for what is queued in it
}

void begin(int connection, int pair, bool stream) {
  if (g_free_count == 0 && g_used == kRelaysMax) {
    ::close(pair);
    ::close(connection);
    return;
  }
  const int at = g_free_count > 0 ? g_free[--g_free_count] : g_used++;
  g_relays[at].connection = connection;
  g_relays[at].pair = pair;
  g_relays[at].stream = stream;
  constexpr std::uint32_t kAny = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  if (!watch(connection, kAny, at) || !watch(pair, kAny, at)) {
    end(at);
    return;
  }
  enqueue(at);
}

Next step_any(Relay& relay) { return relay.stream ? step_stream(relay) : step(relay); }

// What the daemon has written last goes to the callers that have room for it.
[[noreturn]] void leave() {
  for (int at = 0; at < g_used; ++at) {
    if (g_relays[at].stream) step_any(g_relays[at]);
  }
  ::_exit(0);
}

void do_held() {
  if ((g_held.word == 'c' || g_held.word == 's') && g_held.count == kSent) {
    begin(g_held.fds[0], g_held.fds[1], g_held.word == 's');
  } else {
    while (g_held.count > 0) ::close(g_held.fds[--g_held.count]);
  }
  g_held.count = 0;
}

// One message of the daemon. False: there is none.
bool listen_once() {
  char word = 0;
  iovec into{&word, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(kSent * sizeof(int))];
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = ::recvmsg(kControl, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (bytes <= 0) leave();  // the daemon wants us no more, or is gone
  if (g_held.count > 0) do_held();
  g_held.word = word;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    g_held.count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::memcpy(g_held.fds, CMSG_DATA(header), g_held.count * sizeof(int));
  }
  if (word == 'p') ++g_asked;
  return true;
}

void work_once() {
  const int at = g_queue[g_queue_begin];
  g_queue_begin = (g_queue_begin + 1) % kRelaysMax;
  --g_queue_count;
  g_relays[at].queued = false;
  switch (step_any(g_relays[at])) {
    case Next::Wait:
      break;
    case Next::Again:
      enqueue(at);
      break;
    case Next::Over:
      end(at);
      break;
  }
}

void answer() {
  const char* const said = g_used > g_free_count ? "b" : "p";
  for (; g_asked > 0; --g_asked) ::send(kControl, said, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

[[noreturn]] void serve() {
  epoll_event events[kEvents];
  for (;;) {
    const int count = ::epoll_wait(g_epoll, events, kEvents, g_queue_count > 0 ? 0 : -1);
    interrupt_waits(true);
    bool said = false;
    for (int at = 0; at < count; ++at) {
      if (events[at].data.u32 == kControlEvent) {
        said = true;
      } else {
        enqueue(static_cast<int>(events[at].data.u32));
      }
    }
    for (int left = g_queue_count; left > 0; --left) work_once();
    for (int left = kBatch; said && left > 0 && listen_once(); --left) {
    }
    if (g_queue_count == 0) answer();  // behind what was to be done before it was asked: that may have waited
    interrupt_waits(false);
  }
}

}  // namespace
}  // namespace profd::porter

int main(int count, char** words) {
  using namespace profd::porter;
  if (count != 4) return 2;
  if (!drop_privileges(std::atol(words[1]), std::atol(words[2]), std::strtoul(words[3], nullptr, 10))) return 3;
  alignas(8) static char filter[kFilterBytesMax];
  const ssize_t bytes = ::recv(kControl, filter, sizeof filter, 0);
  g_epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (bytes <= 0 || g_epoll < 0 || !watch(kControl, EPOLLIN, kControlEvent)) return 4;
  if (!prepare_waits()) return 4;
  if (!filter_calls(filter, bytes - bytes % 8)) return 5;
  serve();
}
