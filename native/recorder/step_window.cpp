#include "step_window.h"

#include <time.h>

#include <atomic>

#include "recorder.h"
#include "steps.h"

namespace profd::recorder {

namespace {

enum Phase : uint32_t { kNone, kWaiting, kOpen };

std::atomic<uint64_t> begun{0};
std::atomic<bool> by_optimizers{false};
std::atomic<uint32_t> phase{kNone};
std::atomic<uint64_t> opens_at{0}, closes_at{0};  // numbers of steps
std::atomic<uint32_t> sources_then{0};
std::atomic<Session> session_of_window{0};
std::atomic<uint64_t> opened_step{0}, opened_ns{0}, opened_ended{0};

constexpr uint64_t kNoStep = ~uint64_t{0};
std::atomic<uint64_t> watched{kNoStep};
std::atomic<bool> came{false}, waits{false};

uint64_t real_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void open_window(uint64_t number) {
  opened_step = number;
  opened_ended = steps_since(0, monotonic_ns()).count;
  opened_ns = real_ns();
  uint32_t waiting = kWaiting;  // whom the recording's end has overtaken opens nothing
  if (!phase.compare_exchange_strong(waiting, kOpen)) return;
  api.state.armed.store(sources_then);
  if (api.state.live.load() != session_of_window) api.state.armed.store(0);  // it has ended meanwhile: nothing stays on
}

bool obey(uint64_t number) {
  if (api.state.live.load(std::memory_order_relaxed) != session_of_window) return false;
  if (phase == kWaiting && number >= opens_at) open_window(number);
  if (phase != kOpen || !closes_at || number < closes_at) return false;
  phase = kNone;
  return true;
}

bool sees() {
  if (watched.exchange(kNoStep) == kNoStep) return false;
  return came = true;
}

}  // namespace

Begun begin_step() {
  const uint64_t number = begun.fetch_add(1);
  const bool obeys = phase.load() != kNone, watches = number >= watched.load(std::memory_order_relaxed);
  return {number, __builtin_expect(obeys, 0) && obey(number), __builtin_expect(watches, 0) && sees()};
}

void number_by_optimizers(bool yes) {
  if (yes && !begun) by_optimizers = true;
  if (!yes && by_optimizers.exchange(false)) begun = 0;
}

bool optimizers_number() { return by_optimizers.load(std::memory_order_relaxed); }

Begun end_optimizer_step() {
  uint64_t none = 0;
  begun.compare_exchange_strong(none, 1);  // step 0 is the one that ends
  return begin_step();
}

bool number_by_program() {
  if (__builtin_expect(!optimizers_number(), 1)) return false;
  number_by_optimizers(false);
  uint32_t open = kOpen;
  return phase.compare_exchange_strong(open, kNone);
}

void watch_step(uint64_t number) {
  waits = true;
  came = false;
  watched = number;
  if (steps_begun() > number) came = watched.exchange(kNoStep) != kNoStep || came;  // it began meanwhile
}

bool step_came() { return came.load(); }

bool step_awaited() { return waits.load(); }

void forget_watched_step() {
  waits = false;
  watched = kNoStep;
  came = false;
}

uint64_t steps_begun() { return begun.load(); }

bool await_window(const StepWindow& window) {
  opened_ns = 0;
  opens_at = window.step ? window.step - 1 : 0;
  closes_at = window.steps ? window.step + window.steps + 1 : 0;
  sources_then = window.sources;
  session_of_window = window.session;
  phase = kWaiting;
  // After it: a step that began in between has either seen the window, or is seen here.
  if (steps_begun() <= window.step || opened_ns) return true;
  forget_window();
  return false;
}

void forget_window() { phase = kNone; }

bool limit_window(uint32_t sources) {
  if (phase != kWaiting) return false;
  sources_then = sources;
  return phase == kWaiting;
}

Opened opened_window() { return {opened_step, opened_ns, opened_ended}; }

}  // namespace profd::recorder
