#include "door.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "quiet_thread.h"

namespace profd::host {

namespace {

// What epoll tells of: a connection's number and whose side it is, or one of these.
constexpr std::uint64_t LISTENER = 0, WAKE = 1;
constexpr int ACCEPTS = 64;  // in a row
constexpr int TURNS = 32;    // between two looks at what is new
constexpr int EVENTS = 256;
constexpr double LISTEN_AGAIN_SECONDS = 0.1;  // without descriptors
constexpr double GIVE_SECONDS = 0.002;  // at least, between two looks at who may go on

std::system_error failed(const char* what) { return {errno, std::generic_category(), what}; }

}  // namespace

Door::Door(std::string server, const DoorLimits& limits, std::array<std::string, 2> refusals)
    : server_(std::move(server)),
      limits_(limits),
      refusals_(std::move(refusals)),
      peers_(limits.admins, limits.streamers),
      all_(limits.all, Clock::now()) {
  if (server_.size() >= sizeof(sockaddr_un::sun_path)) throw std::invalid_argument("the server's path is too long");
  for (const std::string& block : refusals_) {
    if (block.size() > 8192) throw std::invalid_argument("a refusal is too long");
  }
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) throw failed("epoll_create1");
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = WAKE}};
  if (wake_ < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) < 0) {
    const std::system_error error = failed("eventfd");
    ::close(epoll_);
    if (wake_ >= 0) ::close(wake_);
    throw error;
  }
  thread_ = quiet_thread("profd-door", [this] { run(); });
}

Door::~Door() {
  close(0);
  ::close(wake_);
  ::close(epoll_);
}

// --- what other threads ask for ---

void Door::listen(int listener) {
  const std::lock_guard lock(mutex_);
  if (asked_listener_ >= 0) ::close(asked_listener_);
  asked_listener_ = listener;
  asked_refuse_ = false;
  ::eventfd_write(wake_, 1);
}

void Door::refuse() {
  const std::lock_guard lock(mutex_);
  asked_refuse_ = true;
  ::eventfd_write(wake_, 1);
}

void Door::take(int connection, Peer peer) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable() || asked_close_) {
    ::close(connection);
    return;
  }
  asked_take_.emplace_back(connection, peer);
  ::eventfd_write(wake_, 1);
}

void Door::keep_members(gid_t group) {
  const std::lock_guard lock(mutex_);
  asked_members_ = group;
  ::eventfd_write(wake_, 1);
}

void Door::close(double linger) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) return;
    asked_close_ = asked_refuse_ = true;
    close_at_ = Clock::now() + seconds(linger);
    ::eventfd_write(wake_, 1);
  }
  thread_.join();
}

bool Door::heed() {
  const std::lock_guard lock(mutex_);
  if (asked_refuse_ || asked_listener_ >= 0) {
    watch_listener(false);
    if (listener_ >= 0) ::close(listener_);
    listener_ = std::exchange(asked_listener_, -1);
    if (asked_refuse_ && listener_ >= 0) {
      ::close(listener_);
      listener_ = -1;
    }
    asked_refuse_ = asked_close_;
    watch_listener(true);
  }
  for (const auto& [fd, peer] : std::exchange(asked_take_, {})) {
    if (Connection* taken = admit(fd, peer)) taken->carried = true;
  }
  if (const gid_t group = std::exchange(asked_members_, NO_GROUP); group != NO_GROUP) end_others(group);
  closing_ = asked_close_;
  end_at_ = close_at_;
  return !closing_ || (!connections_.empty() && Clock::now() < end_at_);
}

void Door::watch_listener(bool on) {
  if (listener_ < 0 || on == listening_) return;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = LISTENER}};
  listening_ = on && ::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &event) == 0;
  if (!on) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, listener_, nullptr);
}

// --- the thread ---

void Door::run() {
  while (heed()) {
    take_events();
    const Time now = Clock::now();
    if (listener_ >= 0 && !listening_ && now >= listen_again_) watch_listener(true);
    if (!line_.empty() && now >= give_again_) give(now);
    if (!unreached_.empty() && now >= reach_again_) reach_again();
    if (now >= look_at_deadlines_) end_overdue(now);
    for (int left = TURNS; left > 0 && !turns_.empty(); --left) turn();
  }
  turns_.clear();
  line_.clear();
  connections_.clear();
  if (listener_ >= 0) ::close(listener_);
  listener_ = -1;
  counts_.open = 0;
}

// Milliseconds until something is to be done without an event; -1: nothing is.
int Door::patience(Time now) const {
  if (!turns_.empty()) return 0;
  Time next = Time::max();
  if (!line_.empty()) next = std::min(next, give_again_);
  if (!unreached_.empty()) next = std::min(next, reach_again_);
  if (listener_ >= 0 && !listening_) next = std::min(next, listen_again_);
  if (look_at_deadlines_ != Time::max()) next = std::min(next, look_at_deadlines_);
  if (closing_) next = std::min(next, end_at_);
  if (next == Time::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  return static_cast<int>(std::clamp<long>(left, 0, 1000));
}

void Door::take_events() {
  std::array<epoll_event, EVENTS> events;
  const int count = ::epoll_wait(epoll_, events.data(), EVENTS, patience(Clock::now()));
  for (int index = 0; index < count; ++index) {
    const std::uint64_t what = events[index].data.u64;
    if (what == WAKE) {
      eventfd_t ignored;
      ::eventfd_read(wake_, &ignored);
    } else if (what == LISTENER) {
      accept_some();
    } else if (const auto found = connections_.find(what >> 1); found != connections_.end()) {
      Connection& connection = *found->second;
      ((what & 1) != 0 ? connection.server : connection.client).notice(events[index].events);
      queue(connection);
    }
  }
}

// --- who comes in ---

void Door::accept_some() {
  for (int left = ACCEPTS; left > 0; --left) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        watch_listener(false);  // it would stay readable, and keep us busy
        listen_again_ = Clock::now() + seconds(LISTEN_AGAIN_SECONDS);
      }
      return;
    }
    try {
      admit(fd, peers_.of(fd));
    } catch (const std::system_error&) {
      ::close(fd);
    }
  }
}

Connection* Door::admit(int fd, Peer peer) {
  const Time now = Clock::now();
  User& user = user_of(peer.uid, peer.free, now);
  const Why why = why_not(user);
  if (why != Why::NONE) {
    counts_.refused_uid = peer.uid;
    ++counts_.refused;
    if (user.turned_away >= limits_.answered_each || turned_away_ >= limits_.answered_host) {
      ::close(fd);
      return nullptr;
    }
  }
  auto owned = std::make_unique<Connection>();
  Connection& connection = *owned;
  connection.id = next_id_++;
  connection.user = &user;
  connection.client.open(fd);
  connection.turned_away = why;
  end_within(connection, limits_.begin_seconds);
  connections_.emplace(connection.id, std::move(owned));
  if (why != Why::NONE) {
    ++user.turned_away;
    ++turned_away_;
  } else {
    if (!user.free) {
      users_open_ += user.open == 0;
      ++open_;
    }
    ++user.open;
    ++counts_.open;
  }
  watch(connection, connection.client, false);
  return &connection;
}

// As fairness/shares.py: a full host is no reason to refuse who has less than the others.
Why Door::why_not(const User& user) const {
  if (user.free) return Why::NONE;
  if (user.open >= limits_.each && user.uid != limits_.streamers) return Why::OPEN_PER_USER;
  const int fair = limits_.host / (users_open_ + (user.open == 0));
  return open_ >= limits_.host && user.open >= fair ? Why::OPEN_ON_HOST : Why::NONE;
}

User& Door::user_of(uid_t uid, bool free, Time now) {
  const std::uint64_t key = std::uint64_t{free} << 32 | uid;
  if (const auto found = users_.find(key); found != users_.end()) return found->second;
  if (users_.size() >= forget_at_) forget_users(now);
  const Allowance::Rates& rates = uid == limits_.streamers ? limits_.all : limits_.user;
  return users_.try_emplace(key, uid, free, rates, now).first->second;
}

// Who has nothing here and could do all there is to do: nothing of them is worth remembering.
void Door::forget_users(Time now) {
  for (auto at = users_.begin(); at != users_.end();) {
    User& user = at->second;
    const bool is_idle = user.open == 0 && user.turned_away == 0 && user.allowance.is_full(now);
    at = is_idle ? users_.erase(at) : std::next(at);
  }
  forget_at_ = std::max<std::size_t>(1024, 2 * users_.size());
}

void Door::watch(Connection& connection, const End& side, bool server) {
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = connection.id << 1 | server}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, side.fd(), &event) < 0) connection.deadline = look_at_deadlines_ = Time{};
}

// --- whose turn it is ---

void Door::queue(Connection& connection) {
  if (connection.queued) return;
  connection.queued = true;
  User& user = *connection.user;
  user.ready.push_back(&connection);
  if (user.queued) return;
  user.queued = true;
  turns_.push_back(&user);
}

void Door::turn() {
  User& user = *turns_.front();
  turns_.pop_front();
  user.queued = false;
  Connection& connection = *user.ready.front();
  user.ready.pop_front();
  connection.queued = false;
  if (!step(connection)) {
    end(connection);
  } else if (connection.may_go()) {
    queue(connection);
  }
  if (!user.ready.empty() && !user.queued) {
    user.queued = true;
    turns_.push_back(&user);
  }
}

// --- who waits for an allowance ---

void Door::wait(Connection& connection) {
  connection.waiting = true;
  connection.deadline.reset();
  ++counts_.throttled;
  User& user = *connection.user;
  user.waiting.push_back(&connection);
  if (user.in_line) return;
  user.in_line = true;
  if (line_.empty()) give_again_ = Clock::now() + seconds(GIVE_SECONDS);
  line_.push_back(&user);
}

// One each, in turn, while there is something to give.
void Door::give(Time now) {
  double least = 1;
  all_wanted_ = false;
  for (std::size_t refused = 0; refused < line_.size();) {
    User& user = *line_.front();
    line_.pop_front();
    Connection* connection = next_to_give(user, now);
    if (connection == nullptr) {
      ++refused;
      for (const Connection* waits : user.waiting) {
        const double alone = user.allowance.wait(waits->cost);
        if (alone == 0) all_wanted_ = true;
        least = std::min(least, std::max(alone, all_.wait(waits->cost)));
      }
    } else {
      refused = 0;
      user.allowance.take(connection->cost);
      all_.take(connection->cost);
      std::erase(user.waiting, connection);
      connection->waiting = false;
      connection->granted = true;
      queue(*connection);
    }
    user.in_line = !user.waiting.empty();
    if (user.in_line) line_.push_back(&user);
  }
  give_again_ = now + seconds(std::max(least, GIVE_SECONDS));
}

Connection* Door::next_to_give(User& user, Time now) {
  for (Connection* connection : user.waiting) {
    if (user.allowance.covers(connection->cost, now) && all_.covers(connection->cost, now)) return connection;
  }
  return nullptr;
}

void Door::end_within(Connection& connection, double count) {
  const Time at = Clock::now() + seconds(count);
  connection.deadline = connection.deadline ? std::min(*connection.deadline, at) : at;
  look_at_deadlines_ = std::min(look_at_deadlines_, *connection.deadline);
}

// --- the end ---

void Door::end_overdue(Time now) {
  std::vector<Connection*> overdue;
  look_at_deadlines_ = Time::max();
  for (auto& [id, connection] : connections_) {
    if (is_overdue(*connection, now)) overdue.push_back(connection.get());
  }
  for (Connection* connection : overdue) end(*connection);
}

bool Door::is_overdue(Connection& connection, Time now) {
  // Not while it is we who do not read on.
  if (connection.block_deadline && connection.waiting) connection.block_deadline = now + seconds(limits_.begin_seconds);
  for (const std::optional<Time>& deadline : {connection.deadline, connection.block_deadline}) {
    if (!deadline) continue;
    if (*deadline <= now) return true;
    look_at_deadlines_ = std::min(look_at_deadlines_, *deadline);
  }
  return false;
}

void Door::end_others(gid_t group) {
  std::vector<Connection*> others;
  for (auto& [id, connection] : connections_) {
    if (peers_.needs_no_group(connection->user->uid)) continue;
    // Of a carried one nobody knows any more: its client comes again, if it may.
    if (connection->carried || !has_group(connection->client.fd(), group)) others.push_back(connection.get());
  }
  for (Connection* connection : others) end(*connection);
}

void Door::end(Connection& connection) {
  User& user = *connection.user;
  if (connection.queued) {
    std::erase(user.ready, &connection);
    if (user.ready.empty() && user.queued) {
      std::erase(turns_, &user);
      user.queued = false;
    }
  }
  if (connection.waiting) {
    std::erase(user.waiting, &connection);
    if (user.waiting.empty()) {
      std::erase(line_, &user);
      user.in_line = false;
    }
  }
  if (connection.turned_away != Why::NONE) {
    --user.turned_away;
    --turned_away_;
  } else {
    --user.open;
    --counts_.open;
    if (!user.free) {
      --open_;
      users_open_ -= user.open == 0;
    }
  }
  connections_.erase(connection.id);
}

}  // namespace profd::host
