#include "line.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>

#include "frame_cost.h"
#include "quiet_thread.h"

namespace profd::host {

// End::notice knows them by epoll's names.
static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLHUP == EPOLLHUP && POLLERR == EPOLLERR);
static_assert(POLLRDHUP == EPOLLRDHUP);

Line::Line(int client, int server, const LineLimits& limits)
    : carrying_(std::make_shared<Carrying>(client, server, limits)) {
  quiet_thread("profd-line", [carrying = carrying_] { carrying->run(); }).detach();
}

Carrying::Carrying(int client, int server, const LineLimits& limits)
    : limits_(limits), allowance_(limits.rates, Clock::now()), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const int number = errno;
  client_.open(client);
  server_.open(server);
  if (wake_ < 0) throw std::system_error(number, std::generic_category());
}

Carrying::~Carrying() { ::close(wake_); }

void Carrying::end() {
  ended_ = true;
  tell_both();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = ::write(wake_, &one, sizeof one);
}

void Carrying::tell_both() {
  for (const End* side : {&client_, &server_}) ::shutdown(side->fd(), SHUT_RDWR);
}

void Carrying::run() {
  try {
    while (!ended_ && carry_down() && carry_up()) wait();
  } catch (const std::bad_alloc&) {
  }
  tell_both();
}

bool Carrying::carry_down() {
  if (server_.may_read() && down_.room() > 0) server_.read_into(down_);
  if (!clear()) {
    foreign_ = true;
    return false;
  }
  if (cleared_ > 0 && client_.may_write()) {
    const std::size_t sent = client_.write_from(down_, cleared_);
    down_.drop(sent);
    cleared_ -= sent;
  }
  down_.settle();
  // What it said before its end is gRPC's, in its time.
  return !client_.broken() && !(server_.ended() && cleared_ == 0 && !waiting_);
}

bool Carrying::carry_up() {
  if (client_.may_read() && up_.room() > 0) client_.read_into(up_);
  if (up_.bytes() > 0 && server_.may_write()) up_.drop(server_.write_from(up_, up_.bytes()));
  if (server_.broken()) up_.drop_all();
  up_.settle();
  return !client_.ended();
}

bool Carrying::clear() {
  if (waiting_ && Clock::now() < until_) return true;
  waiting_ = false;
  for (;;) {
    const std::uint8_t* data = down_.data() + cleared_;
    switch (frames_.look(data, down_.bytes() - cleared_)) {
      case Frames::Next::MORE:
        return true;
      case Frames::Next::FOREIGN:
        return false;
      case Frames::Next::BYTES:
        frames_.pass(data, frames_.size);
        if (frames_.block_fields() > static_cast<std::size_t>(limits_.header_fields)) return false;
        cleared_ += frames_.size;
        break;
      case Frames::Next::HEADER:
        if (frames_.block_bytes() > static_cast<std::size_t>(limits_.header_block_bytes)) return false;
        if (!may_pass()) return true;
        frames_.pass_header();
        cleared_ += Frames::HEADER_BYTES;
        begun_ = true;
    }
  }
}

bool Carrying::may_pass() {
  const Cost cost = cost_of(frames_.frame, !begun_);
  const Time now = Clock::now();
  if (allowance_.covers(cost, now)) {
    allowance_.take(cost);
    return true;
  }
  waiting_ = true;
  until_ = now + seconds(allowance_.wait(cost));
  return false;
}

// Until one of them can go on, or an allowance is there, or it is ended.
void Carrying::wait() {
  const auto wanted = [](const End& side, bool reads, bool writes) {
    const int events = (reads ? POLLIN | POLLRDHUP : 0) | (writes && !side.broken() ? POLLOUT : 0);
    return pollfd{events != 0 ? side.fd() : -1, static_cast<short>(events), 0};  // else its end is told again and again
  };
  // What may be read or written at once is not waited for.
  const bool is_ready = (server_.may_read() && down_.room() > 0) || (cleared_ > 0 && client_.may_write()) ||
                        (client_.may_read() && up_.room() > 0) || (up_.bytes() > 0 && server_.may_write());
  pollfd sides[] = {
      wanted(client_, !client_.may_read() && up_.room() > 0, cleared_ > 0 && !client_.may_write()),
      wanted(server_, !server_.may_read() && !server_.ended() && down_.room() > 0, up_.bytes() > 0 && !server_.may_write()),
      {wake_, POLLIN, 0},
  };
  int milliseconds = is_ready ? 0 : -1;
  if (waiting_ && !is_ready) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - Clock::now()).count();
    milliseconds = static_cast<int>(std::clamp<long long>(left, 0, 60'000));
  }
  if (::poll(sides, 3, milliseconds) <= 0) return;
  client_.notice(static_cast<std::uint32_t>(sides[0].revents));
  server_.notice(static_cast<std::uint32_t>(sides[1].revents));
}

}  // namespace profd::host
