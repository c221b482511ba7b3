#include "door_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace profd::host {

std::uint8_t* Buffer::space() {
  if (!memory_) memory_ = std::make_unique_for_overwrite<std::uint8_t[]>(CAPACITY);
  if (begin_ > 0) {
    std::memmove(memory_.get(), memory_.get() + begin_, bytes());
    end_ -= begin_;
    begin_ = 0;
  }
  return memory_.get() + end_;
}

void Buffer::append(const std::uint8_t* data, std::size_t bytes) {
  std::memcpy(space(), data, bytes);
  add(bytes);
}

void Buffer::settle() {
  if (bytes() > 0) return;
  begin_ = end_ = 0;
  memory_.reset();
}

End::~End() {
  if (is_open()) ::close(fd_);
}

void End::notice(std::uint32_t events) {
  if (events & EPOLLIN) readable_ = true;
  if (events & EPOLLOUT) writable_ = !broken_;
  if (events & EPOLLHUP) gone_ = true;
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) readable_ = hung_up_ = true;
}

void End::read_into(Buffer& buffer) {
  std::uint8_t* space = buffer.space();
  const std::size_t room = buffer.room();
  const ssize_t got = ::recv(fd_, space, room, 0);
  if (got > 0) {
    buffer.add(static_cast<std::size_t>(got));
    // Less than there was room for is all there is; of what comes later epoll tells, of an end it has told.
    if (static_cast<std::size_t>(got) < room) readable_ = hung_up_;
    return;
  }
  if (got < 0 && errno == EINTR) return;
  readable_ = false;
  if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) ended_ = true;
}

std::size_t End::write_from(const Buffer& buffer, std::size_t bytes) {
  const ssize_t sent = ::send(fd_, buffer.data(), bytes, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EINTR) return 0;
  writable_ = false;
  if (errno != EAGAIN && errno != EWOULDBLOCK) broken_ = true;
  return 0;
}

void End::say_end() {
  if (said_ || !is_open()) return;
  said_ = true;
  ::shutdown(fd_, SHUT_WR);
}

bool Connection::may_go() const {
  if (turned_away != Why::NONE) return (client.may_read() && up.room() > 0) || (down.bytes() > 0 && client.may_write());
  const bool reads = !waiting && client.may_read() && up.room() > 0;
  const bool sends = cleared > 0 && server.may_write();
  const bool answers = server.may_read() && down.room() > 0;
  return reads || sends || answers || (down.bytes() > 0 && client.may_write());
}

}  // namespace profd::host
