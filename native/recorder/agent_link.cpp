#include "agent_link.h"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace profd::agent {
namespace {

ssize_t send_packet(int fd, const Packet& packet, int descriptor) {
  iovec piece{const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ssize_t sent;
  do sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent;
}

}  // namespace

int Link::connect(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof address.sun_path) return ENAMETOOLONG;
  std::strcpy(address.sun_path, path);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  // Not blocking: EAGAIN says that the daemon's queue of connections is full.
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
    const int why = errno;
    ::close(fd);
    return why;
  }
  socket_.take(fd);
  return 0;
}

bool Link::send(const Packet& packet, int descriptor) {
  if (socket_.ours() && send_packet(fd(), packet, descriptor) >= 0) return true;
  close();
  return false;
}

bool Link::try_send(const Packet& packet) { return socket_.ours() && send_packet(fd(), packet, -1) >= 0; }

Link::Received Link::receive(std::size_t* bytes) {
  if (!socket_.ours()) return Received::Closed;
  ssize_t length;
  // Descriptors sent to us have no room to arrive in: the kernel closes them.
  do length = recv(fd(), buffer_, sizeof buffer_, MSG_DONTWAIT | MSG_TRUNC);
  while (length < 0 && errno == EINTR);
  if (length < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Received::Nothing : Received::Closed;
  if (length == 0) return Received::Closed;  // also an empty packet, which no daemon sends
  if (static_cast<std::size_t>(length) > sizeof buffer_) return Received::Malformed;
  *bytes = static_cast<std::size_t>(length);
  return Received::Packet;
}

}  // namespace profd::agent
