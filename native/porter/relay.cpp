#include "relay.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#endif
#ifndef F_SEAL_SEAL
#define F_SEAL_SEAL 0x0001
#define F_SEAL_SHRINK 0x0002
#define F_SEAL_GROW 0x0004
#endif

namespace profd::porter {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

// Room for one descriptor exactly (CMSG_SPACE would leave room for two): further ones are dropped, and MSG_CTRUNC said.
constexpr std::size_t kRoom = CMSG_LEN(sizeof(int));

alignas(cmsghdr) char g_control[CMSG_SPACE(sizeof(int))];
unsigned char g_packet[1 + kPacketMax];

enum class Room { Some, None, Gone };

Room room(int fd) {
  pollfd asked{fd, POLLOUT, 0};
  if (::poll(&asked, 1, 0) < 0) return Room::None;
  if ((asked.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return Room::Gone;
  return (asked.revents & POLLOUT) != 0 ? Room::Some : Room::None;
}

struct Received {
  ssize_t bytes;
  int flags;
  int fd;  // ours, or -1
};

Received receive(int from) {
  iovec into{g_packet + 1, kPacketMax};
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = g_control;
  message.msg_controllen = kRoom;
  Received got{0, 0, -1};
  do {  // ECONNRESET: closed with something unread in it, said once; what came before follows
    got.bytes = ::recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got.bytes < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got.bytes < 0) return got;
  got.flags = message.msg_flags;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&got.fd, CMSG_DATA(header), sizeof(int));
  }
  return got;
}

// Asked of the file's kind alone: fstat would ask its file system.
bool is_sealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals;
}

bool send_up(int to, ssize_t bytes, int fd) {
  iovec from{g_packet, static_cast<std::size_t>(1 + bytes)};
  msghdr message{};
  message.msg_iov = &from;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = g_control;
    message.msg_controllen = kRoom;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = kRoom;
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  return ::sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

Next over(const Relay& relay, Up why) {
  g_packet[0] = static_cast<unsigned char>(why);
  send_up(relay.pair, 0, -1);
  return Next::Over;
}

// The daemon has closed its end: what it has said before goes down first.
Next gone(const Relay& relay) { return relay.last_words < 0 ? Next::Again : Next::Over; }

// Whether the next packet has some: to look at it with no room for them drops none.
bool has_descriptors(int from) {
  msghdr message{};
  return ::recvmsg(from, &message, MSG_DONTWAIT | MSG_PEEK) >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
}

// Whether the daemon has read all of it. The kernel wakes us when a byte is left to be counted.
bool is_read(int pair) {
  int bytes = 0;
  return ::ioctl(pair, SIOCOUTQ, &bytes) != 0 || bytes <= 1;
}

Next one_up(Relay& relay) {
  switch (room(relay.pair)) {
    case Room::None:
      return Next::Wait;
    case Room::Gone:
      return gone(relay);
    case Room::Some:
      break;
  }
  // All porters are one user, of whom the kernel lets so many descriptors be on the way: one of each connection.
  if (!is_read(relay.pair) && has_descriptors(relay.connection)) return Next::Wait;
  const Received got = receive(relay.connection);
  if (got.bytes < 0) {
    if (errno != EAGAIN) return over(relay, Up::Unread);
    return relay.last_words >= 0 ? over(relay, Up::Closed) : Next::Wait;
  }
  Next next = Next::Again;
  if ((got.flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    next = over(relay, Up::TooMuch);
  } else if (got.bytes == 0 && got.fd < 0) {
    return over(relay, Up::Closed);
  } else if (got.fd >= 0 && !is_sealed(got.fd)) {
    next = over(relay, Up::NoArena);
  } else {
    g_packet[0] = static_cast<unsigned char>(Up::Packet);
    if (!send_up(relay.pair, got.bytes, got.fd)) next = errno == EPIPE ? gone(relay) : Next::Over;
    if (relay.last_words > 0 && --relay.last_words == 0) next = over(relay, Up::Closed);
  }
  if (got.fd >= 0) ::close(got.fd);  // which may wait: the daemon knows by now
  return next;
}

Next one_down(Relay& relay) {
  if (room(relay.connection) != Room::Some) return Next::Wait;  // where it is gone, what it has said comes up first
  ssize_t bytes = 0;
  do {
    bytes = ::recv(relay.pair, g_packet, sizeof g_packet, MSG_DONTWAIT);
  } while (bytes < 0 && (errno == EINTR || errno == ECONNRESET));
  if (bytes < 0) return Next::Wait;
  if (bytes == 0) {
    relay.last_words = kLastWordsMax;
    return Next::Wait;
  }
  ::send(relay.connection, g_packet, static_cast<std::size_t>(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
  return Next::Again;
}

// The daemon's end is shut for writing, or closed: seen also where nothing can go down.
bool wants_no_more(int pair) {
  pollfd asked{pair, POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) > 0 && (asked.revents & POLLRDHUP) != 0;
}

}  // namespace

Next step(Relay& relay) {
  for (int packets = 0; relay.last_words < 0; ++packets) {
    if (packets == kBatch) return Next::Again;
    if (one_down(relay) == Next::Wait) break;
  }
  if (relay.last_words < 0 && room(relay.connection) != Room::Some && wants_no_more(relay.pair)) {
    relay.last_words = kLastWordsMax;
  }
  for (int packets = 0; packets < kBatch; ++packets) {
    const Next next = one_up(relay);
    if (next != Next::Again) return next;
  }
  return Next::Again;
}

}  // namespace profd::porter
