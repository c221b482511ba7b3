// What the door does with one connection: bytes to and fro, the frames that may pass, and the server behind it.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "door.h"
#include "frame_cost.h"

namespace profd::host {

namespace {

constexpr double REACH_AGAIN_SECONDS = 0.01;
constexpr double ANSWERED_SECONDS = 1.0;  // from the answer of one that was turned away to its end

constexpr std::uint8_t SETTINGS_AND_ACK[] = {0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0};
constexpr std::uint8_t END_STREAM_AND_HEADERS = 0x5;

}  // namespace

bool Door::step(Connection& connection) try {
  if (connection.waiting && connection.client.gone()) return false;  // its flood is nobody's any more
  const bool goes_on = carry_up(connection) && carry_down(connection);
  connection.up.settle();
  connection.down.settle();
  return goes_on;
} catch (const std::bad_alloc&) {
  return false;
}

bool Door::carry_up(Connection& connection) {
  End &client = connection.client, &server = connection.server;
  Buffer& up = connection.up;
  if (!connection.waiting && client.may_read() && up.room() > 0) client.read_into(up);
  if (!connection.waiting && !clear(connection)) return false;
  if (connection.turned_away != Why::NONE) {
    up.drop(std::exchange(connection.cleared, 0));
    return !client.ended() && !client.broken();
  }
  if (connection.begun && !server.is_open() && !connection.unreached && !reach_server(connection)) return false;
  if (connection.cleared > 0 && server.may_write()) {
    const std::size_t sent = server.write_from(up, connection.cleared);
    up.drop(sent);
    connection.cleared -= sent;
  }
  if (server.broken()) {  // what it still had to say is said to the client
    up.drop(std::exchange(connection.cleared, 0));
  }
  if (client.ended() && connection.cleared == 0 && !connection.waiting) {
    if (!server.is_open()) return false;
    server.say_end();
    end_within(connection, limits_.end_seconds);
  }
  return true;
}

bool Door::carry_down(Connection& connection) {
  End &client = connection.client, &server = connection.server;
  Buffer& down = connection.down;
  if (server.may_read() && down.room() > 0) server.read_into(down);
  if (down.bytes() > 0 && client.may_write()) down.drop(client.write_from(down, down.bytes()));
  if (client.broken()) down.drop_all();
  if (server.ended() && down.bytes() == 0) return false;
  if (server.gone()) end_within(connection, limits_.end_seconds);  // nothing is added to what it has said
  return true;
}

// --- frames ---

bool Door::clear(Connection& connection) {
  Frames& frames = connection.frames;
  for (;;) {
    const std::uint8_t* data = connection.up.data() + connection.cleared;
    switch (frames.look(data, connection.up.bytes() - connection.cleared)) {
      case Frames::Next::MORE:
        return true;
      case Frames::Next::FOREIGN:
        ++counts_.foreign;
        return false;
      case Frames::Next::BYTES:
        frames.pass(data, frames.size);
        if (frames.block_fields() > static_cast<std::size_t>(limits_.header_fields)) {
          ++counts_.foreign;
          return false;
        }
        connection.cleared += frames.size;
        watch_block(connection);
        break;
      case Frames::Next::HEADER:
        if (frames.block_bytes() > static_cast<std::size_t>(limits_.header_block_bytes)) {
          ++counts_.foreign;
          return false;
        }
        if (connection.turned_away != Why::NONE) {
          if (!tell(connection)) return false;
        } else if (!may_pass(connection)) {
          return true;
        } else if (!connection.begun) {
          connection.deadline.reset();
        }
        frames.pass_header();
        connection.cleared += Frames::HEADER_BYTES;
        connection.begun = true;
        watch_block(connection);
    }
  }
}

bool Door::may_pass(Connection& connection) {
  User& user = *connection.user;
  if (std::exchange(connection.granted, false) || user.free) return true;
  const Cost cost = cost_of(connection.frames.frame, !connection.begun);
  const Time now = Clock::now();
  if (is_bulk(connection.frames.frame) && user.allowance.covers(cost, now)) {
    user.allowance.take(cost);  // not the host's: it goes on whatever others send
    return true;
  }
  // Who opens a stream stands behind those that wait to; what belongs to one that is open does not.
  const bool is_behind = cost.streams > 0 && (!user.waiting.empty() || all_wanted_);
  if (!is_behind && user.allowance.covers(cost, now) && all_.covers(cost, now)) {
    user.allowance.take(cost);
    all_.take(cost);
    return true;
  }
  connection.cost = cost;
  wait(connection);
  return false;
}

// --- the other side ---

// False: it cannot be reached at all.
bool Door::reach_server(Connection& connection) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, server_.c_str(), server_.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
    const bool is_full = errno == EAGAIN || errno == EINTR;
    ::close(fd);
    if (is_full) {
      if (unreached_.empty()) reach_again_ = Clock::now() + seconds(REACH_AGAIN_SECONDS);
      unreached_.push_back(connection.id);
      connection.unreached = true;
    }
    return is_full;
  }
  connection.server.open(fd);
  watch(connection, connection.server, true);
  return true;
}

void Door::reach_again() {
  for (const std::uint64_t id : std::exchange(unreached_, {})) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    found->second->unreached = false;
    queue(*found->second);
  }
}

// One that was turned away is answered as by a server that refuses every call: so its user reads why. False: it asks
// more than it reads.
bool Door::tell(Connection& connection) {
  Buffer& down = connection.down;
  const Frame& asked = connection.frames.frame;
  if (!connection.begun) {
    down.append(SETTINGS_AND_ACK, sizeof SETTINGS_AND_ACK);
    return true;
  }
  if (asked.type != HEADERS) return true;
  const std::string& block = refusals_[connection.turned_away == Why::OPEN_PER_USER ? 0 : 1];
  if (down.room() < Frames::HEADER_BYTES + block.size()) return false;
  const auto byte = [](std::size_t number, int shift) { return static_cast<std::uint8_t>(number >> shift); };
  const std::uint8_t header[Frames::HEADER_BYTES] = {
      byte(block.size(), 16),  byte(block.size(), 8),  byte(block.size(), 0),  HEADERS, END_STREAM_AND_HEADERS,
      byte(asked.stream, 24), byte(asked.stream, 16), byte(asked.stream, 8), byte(asked.stream, 0)};
  down.append(header, sizeof header);
  down.append(reinterpret_cast<const std::uint8_t*>(block.data()), block.size());
  end_within(connection, ANSWERED_SECONDS);
  return true;
}

// A header block holds gRPC's memory and its stream until its end comes.
void Door::watch_block(Connection& connection) {
  if (!connection.frames.in_block()) {
    connection.block_deadline.reset();
  } else if (!connection.block_deadline) {
    connection.block_deadline = Clock::now() + seconds(limits_.begin_seconds);
    look_at_deadlines_ = std::min(look_at_deadlines_, *connection.block_deadline);
  }
}

}  // namespace profd::host
