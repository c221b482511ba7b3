#include "empty.h"

#include <cerrno>
#include <cstddef>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace profd::porter {
namespace {

// Room for whose a packet is, and for no descriptor: to look drops none, and where there is one says MSG_CTRUNC.
constexpr std::size_t kRoom = CMSG_SPACE(sizeof(ucred));

char g_bytes[64 * 1024];

struct Seen {
  ssize_t bytes;
  bool descriptors;
  bool whose;  // it is something: a packet may have no bytes, as the end has none
};

Seen take(int fd, std::size_t most, int how) {
  iovec into{g_bytes, most};
  alignas(cmsghdr) char control[kRoom];
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t bytes = 0;
  do {  // ECONNRESET: closed with something unread in it, said once
    bytes = ::recvmsg(fd, &message, how | MSG_DONTWAIT);
  } while (bytes < 0 && (errno == EINTR || errno == ECONNRESET));
  return {bytes, (message.msg_flags & MSG_CTRUNC) != 0, bytes >= 0 && CMSG_FIRSTHDR(&message) != nullptr};
}

// An urgent byte of a stream may have descriptors, and is not seen by looking.
bool is_urgent(int fd) {
  pollfd asked{fd, POLLPRI, 0};
  return ::poll(&asked, 1, 0) < 0 || (asked.revents & (POLLPRI | POLLNVAL)) != 0;
}

}  // namespace

bool make_empty(int fd) {
  int kind = 0;
  socklen_t size = sizeof kind;
  const int on = 1;
  // From here on nobody can send. The kernel says then of each packet whose it is, also of those that are there.
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) != 0 || ::shutdown(fd, SHUT_RDWR) != 0 ||
      ::setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 || is_urgent(fd)) {
    return false;
  }
  for (;;) {
    const Seen seen = take(fd, sizeof g_bytes, MSG_PEEK);
    if (seen.bytes < 0 || seen.descriptors) return false;
    if (seen.bytes == 0 && (kind == SOCK_STREAM || !seen.whose)) return true;
    // Of a stream just what was looked at: further on there may be one.
    const std::size_t most = kind == SOCK_STREAM ? static_cast<std::size_t>(seen.bytes) : sizeof g_bytes;
    if (take(fd, most, 0).bytes < 0) return false;
  }
}

}  // namespace profd::porter
