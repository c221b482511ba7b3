#include "stream.h"

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace profd::porter {
namespace {

constexpr std::size_t kPieceMax = 64 * 1024;

char g_piece[kPieceMax];

short ready_for(int fd, short events) {
  pollfd asked{fd, events, 0};
  return ::poll(&asked, 1, 0) > 0 ? asked.revents : 0;
}

// Both directions are shut, at whichever end.
bool is_shut(int fd) { return (ready_for(fd, 0) & POLLHUP) != 0; }

// Take away what was sent on: it was seen before, so it is there.
bool take(int from, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t taken = ::recv(from, g_piece, bytes, MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken <= 0) return false;
    bytes -= static_cast<std::size_t>(taken);
  }
  return true;
}

enum class Piece { Moved, None, Over };

Piece one(int from, int to) {
  if (ready_for(to, POLLOUT) == 0) return Piece::None;
  const ssize_t seen = ::recv(from, g_piece, kPieceMax, MSG_PEEK | MSG_DONTWAIT);
  if (seen < 0 && errno == EINTR) return Piece::Moved;
  if (seen < 0 && errno == EAGAIN) return Piece::None;
  if (seen <= 0) {
    ::shutdown(to, SHUT_WR);
    return Piece::Over;
  }
  const ssize_t sent = ::send(to, g_piece, static_cast<std::size_t>(seen), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno == EINTR) return Piece::Moved;
  if (sent < 0 && errno == EAGAIN) return Piece::None;
  if (sent >= 0 && take(from, static_cast<std::size_t>(sent))) return Piece::Moved;
  ::shutdown(from, SHUT_RD);  // whoever still sends hears that nobody reads
  return Piece::Over;
}

// False: there may be more.
bool carry(int from, int to, bool& over) {
  for (int left = kBatch; left > 0 && !over; --left) {
    const Piece piece = one(from, to);
    if (piece == Piece::None) return true;
    over = piece == Piece::Over;
  }
  return over;
}

}  // namespace

Next step_stream(Relay& relay) {
  const bool up = carry(relay.connection, relay.pair, relay.up_over);
  const bool down = carry(relay.pair, relay.connection, relay.down_over);
  if (relay.up_over && (relay.down_over || is_shut(relay.connection))) return Next::Over;
  if (relay.down_over && is_shut(relay.pair)) return Next::Over;
  return up && down ? Next::Wait : Next::Again;
}

}  // namespace profd::porter
