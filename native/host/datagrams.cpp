#include "datagrams.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <utility>

#include "datagram_batch.h"
#include "interrupts.h"

namespace profd::host {
namespace {

// As struct sched_attr of linux/sched/types.h, which clashes with libc's headers.
struct SchedulingAttributes {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime_ns, deadline_ns, period_ns;
};

// The least slice that Linux gives (6.12 and later; others ignore it). Beside busy processes its holder runs sooner after
// it was woken, and no longer in all: no privilege is needed. With a flood on one of two cores at load 7, tries of a poll that
// found the queue full went from one in five to one in ten.
constexpr std::uint64_t kSliceNs = 100'000;

void ask_for_short_slices() {
  SchedulingAttributes ours{};
  if (::syscall(SYS_sched_getattr, 0, &ours, sizeof(ours), 0) != 0 || ours.policy != SCHED_OTHER) return;
  ours.runtime_ns = kSliceNs;
  ::syscall(SYS_sched_setattr, 0, &ours, 0);  // where it is refused we run as before
}

int event() {
  const int descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return descriptor;
}

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Drain::Drain(std::size_t datagram_bytes, std::size_t queued, const ShareLimits& shares, bool interrupts)
    : datagram_bytes_(datagram_bytes), interrupts_(interrupts), shares_(shares), wake_(event()), queue_(queued) {}

Drain::~Drain() { ::close(wake_); }

void Drain::run(const std::vector<int>& sockets) {
  DatagramBatch batch(datagram_bytes_);
  Interrupts interrupts(interrupts_);
  // poll and not epoll: a descriptor that is another socket now needs no registration.
  std::vector<pollfd> waited{{wake_, POLLIN, 0}};
  for (const int socket : sockets) waited.push_back({socket, POLLIN, 0});
  ask_for_short_slices();
  while (!stopping_.load(std::memory_order_acquire)) {
    std::size_t received = 0;
    for (const int socket : sockets) received += receive(socket, batch, interrupts);
    // To sleep, and not to look again and again: where processors are busy, whoever slept runs sooner.
    if (received > 0 || ::poll(waited.data(), waited.size(), -1) <= 0) continue;
    std::uint64_t ignored;
    if (waited[0].revents != 0 && ::read(wake_, &ignored, sizeof(ignored)) < 0) continue;
  }
}

std::size_t Drain::receive(int socket, DatagramBatch& batch, Interrupts& interrupts) {
  interrupts.begin();
  const std::size_t count = batch.receive(socket);  // all that lies there, and then one wait for what came with it
  const bool waited = interrupts.end();
  if (count == 0) return 0;
  bool attached = false;
  const std::int64_t now_ns = monotonic_ns();
  std::vector<Datagram> kept;
  for (std::size_t index = 0; index < count; ++index) {
    Datagram datagram = batch.sender(index);
    attached |= datagram.attached;
    if (shares_.beyond(datagram.pid, datagram.uid, now_ns)) continue;
    datagram.socket = socket;
    batch.complete(index, datagram);
    kept.push_back(std::move(datagram));
  }
  std::lock_guard lock(mutex_);
  counts_.flood += count - kept.size();
  counts_.waits += waited && attached;
  if (kept.empty()) return count;
  if (queue_.empty()) filled_.notify_one();
  for (Datagram& datagram : kept) counts_.backlog += queue_.push(std::move(datagram));
  return count;
}

std::vector<Datagram> Drain::take(std::size_t about) {
  // A poll waits for both threads to be woken.
  static thread_local const bool asked = (ask_for_short_slices(), true);
  static_cast<void>(asked);
  std::unique_lock lock(mutex_);
  filled_.wait(lock, [this] { return !queue_.empty() || stopping_.load(std::memory_order_acquire); });
  if (stopping_.load(std::memory_order_acquire)) return {};
  return queue_.take(about);
}

DrainCounts Drain::counts() {
  std::lock_guard lock(mutex_);
  return counts_;
}

void Drain::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true, std::memory_order_release);
  }
  filled_.notify_all();
  wake();
}

void Drain::changed() { wake(); }

void Drain::wake() {
  const std::uint64_t one = 1;
  if (::write(wake_, &one, sizeof(one)) < 0) return;  // full: it is awake
}

}  // namespace profd::host
