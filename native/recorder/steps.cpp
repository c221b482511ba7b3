#include "steps.h"

#include <algorithm>
#include <atomic>

#include "recorder.h"

namespace profd::recorder {

namespace {

constexpr uint64_t kKept = 64;
std::atomic<uint64_t> durations[kKept];
std::atomic<uint64_t> ended{0};
std::atomic<uint64_t> last_ns{0};    // 0: no step runs
std::atomic<uint64_t> row_began{0};  // steps that had ended when the row without a pause began
std::atomic<uint64_t> awaited{0};  // number of the step, from 1
std::atomic<uint64_t> awaited_from{0};  // not before this
std::atomic<Session> awaited_in{0};

// Of a step that is not one too few. Says so once.
bool is_last(uint64_t now_ns) {
  if (api.state.live.load(std::memory_order_relaxed) != awaited_in || now_ns < awaited_from) return false;
  return awaited.exchange(0) != 0;
}

}  // namespace

bool note_step(uint64_t monotonic_ns) {
  const uint64_t before = last_ns.exchange(monotonic_ns, std::memory_order_relaxed);
  const uint64_t number = ended.load(std::memory_order_relaxed);
  if (before == 0) {  // the first call only begins a step
    row_began.store(number, std::memory_order_relaxed);
    return false;
  }
  durations[number % kKept].store(monotonic_ns - before, std::memory_order_relaxed);
  const uint64_t count = ended.fetch_add(1, std::memory_order_release) + 1;
  const uint64_t wanted = awaited.load(std::memory_order_relaxed);
  return wanted && count >= wanted && is_last(monotonic_ns);
}

void pause_steps() { last_ns.store(0, std::memory_order_relaxed); }

void await_steps(uint64_t whole, Session session, uint64_t least_ns) {
  const bool within_one = last_ns.load(std::memory_order_relaxed) != 0;
  awaited_in = session;
  awaited_from = least_ns ? monotonic_ns() + least_ns : 0;
  awaited = whole ? ended.load(std::memory_order_relaxed) + within_one + whole : 0;
}

Steps steps_since(uint64_t since, uint64_t monotonic_ns) {
  Steps steps{.count = ended.load(std::memory_order_acquire)};
  const uint64_t from = std::max(since, row_began.load(std::memory_order_relaxed));
  const uint64_t many = std::min(kKept, steps.count > from ? steps.count - from : 0);
  uint64_t found[kKept];
  for (uint64_t i = 0; i < many; i++) {
    found[i] = durations[(steps.count - 1 - i) % kKept].load(std::memory_order_relaxed);
  }
  steps.known = many;
  if (many) {
    std::nth_element(found, found + many / 2, found + many);
    steps.median_ns = found[many / 2];
  }
  const uint64_t last = last_ns.load(std::memory_order_relaxed);
  if (last) steps.running_for = monotonic_ns > last ? monotonic_ns - last : 1;
  return steps;
}

}  // namespace profd::recorder
