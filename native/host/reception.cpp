#include "reception.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "quiet_thread.h"

namespace profd::host {

namespace {

enum What : std::uint64_t { AT_LISTENER, AT_WAKE };
constexpr int ACCEPTED_IN_A_ROW = 64;
constexpr double ACCEPT_AGAIN_SECONDS = 0.1;  // without descriptors
constexpr double TELL_SECONDS = 0.1;          // between two signals, but for what is to be taken

std::system_error not_served(const char* what) { return {errno, std::generic_category(), what}; }

bool is_exhausted(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS; }

}  // namespace

Reception::Reception(gid_t admins, const ReceptionLimits& limits, std::string refusal, std::shared_ptr<Droppers> droppers)
    : peers_(admins, limits.streamers), limits_(limits), refusal_(std::move(refusal)), droppers_(std::move(droppers)) {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  signal_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = AT_WAKE}};
  if (epoll_ < 0 || wake_ < 0 || signal_ < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) < 0) {
    const std::system_error error = not_served("a socket cannot be served");
    for (const int fd : {epoll_, wake_, signal_}) {
      if (fd >= 0) ::close(fd);
    }
    throw error;
  }
  thread_ = quiet_thread("profd-reception", [this] { run(); });
}

Reception::~Reception() {
  for (const int fd : close()) ::close(fd);
}

// --- what the event loop asks for ---

int Reception::listen(int listener) {
  const std::lock_guard lock(accepting_);
  watch(false);
  const int before = std::exchange(listener_, listener);
  ::eventfd_write(wake_, 1);
  return before;
}

std::vector<Arrival> Reception::take(std::size_t most) {
  const std::lock_guard lock(mutex_);
  const auto end = arrived_.begin() + static_cast<std::ptrdiff_t>(std::min(most, arrived_.size()));
  std::vector<Arrival> taken(arrived_.begin(), end);
  arrived_.erase(arrived_.begin(), end);
  see_whether_full();
  return taken;
}

std::vector<int> Reception::take_undropped() {
  const std::lock_guard lock(mutex_);
  std::vector<int> taken = std::exchange(undropped_, {});
  see_whether_full();
  return taken;
}

// With `mutex_`, behind what changes that.
void Reception::see_whether_full() {
  const auto most = static_cast<std::size_t>(limits_.waiting);
  const bool was = std::exchange(is_full_, arrived_.size() >= most || undropped_.size() >= most);
  if (was && !is_full_) ::eventfd_write(wake_, 1);
}

ReceptionCounts Reception::counts() {
  eventfd_t ignored;
  ::eventfd_read(signal_, &ignored);
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<int> Reception::close() {
  if (!thread_.joinable()) return {};
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  ::eventfd_write(wake_, 1);
  thread_.join();
  std::vector<int> left = std::exchange(undropped_, {});
  for (const Arrival& arrival : std::exchange(arrived_, {})) left.push_back(arrival.fd);
  if (const int listener = listen(-1); listener >= 0) left.push_back(listener);
  for (int* const own : {&epoll_, &wake_, &signal_}) ::close(std::exchange(*own, -1));
  return left;
}

// --- the thread ---

void Reception::run() {
  for (;;) {
    epoll_event events[2];
    const int count = ::epoll_wait(epoll_, events, 2, patience(Clock::now()));
    bool somebody_comes = false;
    for (int index = 0; index < count; ++index) {
      eventfd_t ignored;
      if (events[index].data.u64 == AT_WAKE) {
        ::eventfd_read(wake_, &ignored);
      } else {
        somebody_comes = true;
      }
    }
    bool is_full;
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      is_full = is_full_;
    }
    {
      const std::lock_guard lock(accepting_);
      watch(!is_full && Clock::now() >= accept_again_);
    }
    if (somebody_comes) accept_some();
    if (untold_) tell(false);
  }
}

// Milliseconds until something is to be done that nobody wakes us for; -1: nothing is.
int Reception::patience(Time now) const {
  Time next = Time::max();
  if (accept_again_ > now) next = std::min(next, accept_again_);
  if (untold_) next = std::min(next, told_ + seconds(TELL_SECONDS));
  if (next == Time::max()) return -1;
  return static_cast<int>(std::clamp<long>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count(), 0, 1000));
}

// With `accepting_`. While it is not to be accepted on, it would stay readable and keep us busy.
void Reception::watch(bool on) {
  if (listener_ < 0 || on == watched_) return;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = AT_LISTENER}};
  const bool done = ::epoll_ctl(epoll_, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_, &event) == 0;
  watched_ = on && done;
  if (on && !done) accept_again_ = Clock::now() + seconds(ACCEPT_AGAIN_SECONDS);
}

void Reception::accept_some() {
  for (int left = ACCEPTED_IN_A_ROW; left > 0 && accept_one(); --left) {
  }
}

// False: nobody more, for now.
bool Reception::accept_one() {
  int fd, error;
  {
    const std::lock_guard lock(accepting_);
    if (!watched_) return false;
    fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    error = errno;
    if (fd < 0 && is_exhausted(error)) {
      accept_again_ = Clock::now() + seconds(ACCEPT_AGAIN_SECONDS);
      watch(false);
    }
  }
  if (fd < 0) return error == ECONNABORTED || error == EINTR;
  try {
    const Peer peer = peers_.of(fd);
    if (may(peer)) {
      receive(fd, peer);
    } else {
      refuse(fd, peer.uid);
    }
  } catch (const std::exception&) {  // no memory, or the kernel does not say who it is
    drop(fd, static_cast<uid_t>(-1));
  }
  const std::lock_guard lock(mutex_);
  return !is_full_;
}

bool Reception::may(const Peer& peer) {
  if (peer.free || peer.uid == limits_.streamers) return true;
  const Time now = Clock::now();
  const Cost one{1, 0};
  if (users_.size() >= static_cast<std::size_t>(limits_.users) && !users_.contains(peer.uid)) forget_users(now);
  Allowance& allowance =
      users_.try_emplace(peer.uid, Allowance::Rates{limits_.per_second, limits_.burst, 1, 1}, now).first->second;
  if (!allowance.covers(one, now)) return false;
  allowance.take(one);
  return true;
}

// Of who could come as often as anybody nothing is worth remembering.
void Reception::forget_users(Time now) {
  std::erase_if(users_, [now](const auto& user) { return Allowance(user.second).is_full(now); });
  if (users_.size() >= static_cast<std::size_t>(limits_.users)) users_.clear();
}

void Reception::receive(int fd, const Peer& peer) {
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back({fd, peer});
    see_whether_full();
  }
  tell(true);
}

void Reception::refuse(int fd, uid_t uid) {
  // Who does not read it must not hold us; to send drops nothing.
  if (!refusal_.empty()) ::send(fd, refusal_.data(), refusal_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  {
    const std::lock_guard lock(mutex_);
    ++counts_.refused;
    counts_.refused_uid = uid;
  }
  untold_ = true;
  drop(fd, uid);
}

void Reception::drop(int fd, uid_t uid) {
  if (!droppers_) {
    ::close(fd);
    return;
  }
  if (droppers_->drop(uid, fd) == 0) return;
  {
    const std::lock_guard lock(mutex_);
    undropped_.push_back(fd);  // whoever starts them is the event loop
    see_whether_full();
  }
  tell(true);
}

void Reception::tell(bool at_once) {
  const Time now = Clock::now();
  if (!at_once && now - told_ < seconds(TELL_SECONDS)) return;
  told_ = now;
  untold_ = false;
  ::eventfd_write(signal_, 1);
}

}  // namespace profd::host
