#include "device_times.h"

#include <torch/csrc/profiler/stubs/base.h>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "contexts.h"

namespace profd::torch_observer {
namespace {

using arena::Kind;
using recorder::Lost;
using Event = torch::profiler::impl::ProfilerVoidEventStub;

constexpr char kName[] = "op device time (CUDA events, ns)";  // daemon/profd/query/event_times.py has it, too

// Of a pair, in the low bits of Pair::state. The rest is the recording: an op that begins or ends late leaves those of the
// next recording alone.
enum Phase : uint64_t { kUnused, kBegun, kBusy, kEnded, kPhases };
constexpr uint64_t state(uint32_t recording, Phase phase) { return uint64_t{recording} * kPhases + phase; }

struct Pair {
  Event begin, end;  // of whoever made it busy
  uint64_t id = 0;
  c10::DeviceIndex device = 0;
  std::atomic<uint64_t> state{0};
};

const recorder::Api* events_api = nullptr;
Pair* pairs = nullptr;  // never freed: an op may end whenever it likes
std::atomic<uint32_t> recording{0};
std::atomic<uint32_t> begun{0};
std::atomic<bool> live{false};

bool record_event(c10::DeviceIndex* device, Event* event) noexcept try {
  torch::profiler::impl::cudaStubs()->record(device, event, nullptr);
  return true;
} catch (...) {
  events_api->lose(Lost::CudaEventFailed, 1);
  return false;
}

// The device time in ns; negative: the device cannot say.
double elapsed(const Pair& pair) noexcept try {
  return double{torch::profiler::impl::cudaStubs()->elapsed(&pair.begin, &pair.end)} * 1e3;
} catch (...) {
  return -1;
}

void write(recorder::Thread* thread, recorder::Session session, uint32_t name, const Pair& pair, double ns) {
  arena::GpuRecord which{};
  which.device = static_cast<uint32_t>(pair.device);
  which.bytes = pair.id;
  uint8_t extension[4 + arena::kGpuRecordShort];
  const uint32_t head = static_cast<uint32_t>(arena::Ext::Gpu) | arena::kGpuRecordShort << 16;
  std::memcpy(extension, &head, sizeof head);
  std::memcpy(extension + sizeof head, &which, arena::kGpuRecordShort);
  arena::Slot slot{};
  recorder::set_head(&slot, name, Kind::Counter, 0, 0, 0);
  std::memcpy(&slot.end, &ns, sizeof ns);
  slot.start = recorder::ticks(*events_api);
  recorder::append(*events_api, thread, session, slot, extension, sizeof extension);
}

bool make_busy(Pair& pair, uint64_t from, uint32_t of) {
  return pair.state.compare_exchange_strong(from, state(of, kBusy), std::memory_order_acq_rel);
}

// Whether an op of this recording has ended; one that is just beginning or ending is waited for. Nobody else touches the
// pair then.
bool take(Pair& pair, uint32_t of) {
  while (!make_busy(pair, state(of, kEnded), of)) {
    if (make_busy(pair, state(of, kBegun), of)) {
      pair.begin.reset();
      pair.state.store(state(of, kUnused), std::memory_order_release);
    }
    if (pair.state.load(std::memory_order_acquire) != state(of, kBusy)) return false;
    sched_yield();
  }
  return true;
}

void read(recorder::Thread* thread, recorder::Session session, uint32_t name, Pair& pair) {
  const double ns = elapsed(pair);
  if (std::isfinite(ns) && ns >= 0) {
    write(thread, session, name, pair, ns);
  } else {
    events_api->lose(Lost::CudaEventFailed, 1);
  }
}

void read_all(uint32_t count) {
  const recorder::Session session = events_api->state.live.load(std::memory_order_acquire);
  recorder::Thread* thread = session ? recorder::current_thread(*events_api, local_now().recorder_slot) : nullptr;
  const uint32_t name = thread ? recorder::intern(*events_api, thread, session, kName, sizeof kName - 1) : arena::kNoName;
  const uint32_t of = recording.load(std::memory_order_relaxed);
  for (Pair* pair = pairs; pair != pairs + count; ++pair) {
    if (!take(*pair, of)) continue;
    if (thread) read(thread, session, name, *pair);
    pair->begin.reset(), pair->end.reset();
    pair->state.store(state(of, kUnused), std::memory_order_release);
  }
}

// CUDA does not work in a child of a fork, and to destroy its parent's events is an error: they are left where they are.
void forget() {
  live.store(false, std::memory_order_relaxed);
  pairs = nullptr;
}

}  // namespace

void start_device_times(const recorder::Api& api) {
  if (live.load(std::memory_order_relaxed)) return;
  if (!torch::profiler::impl::cudaStubs()->enabled()) throw std::runtime_error("this torch has no CUDA events");
  static const int once = pthread_atfork(nullptr, nullptr, forget);
  (void)once;
  events_api = &api;
  if (!pairs) pairs = new Pair[kTimedOpsMax];
  begun.store(0, std::memory_order_relaxed);
  recording.fetch_add(1, std::memory_order_relaxed);
  live.store(true, std::memory_order_release);
}

TimedOp begin_timed_op() {
  if (!live.load(std::memory_order_acquire)) return {};
  const bool room = begun.load(std::memory_order_relaxed) < kTimedOpsMax;  // it never goes around
  const uint32_t number = room ? begun.fetch_add(1, std::memory_order_relaxed) : kTimedOpsMax;
  if (__builtin_expect(number >= kTimedOpsMax, 0)) {
    events_api->lose(Lost::CudaEventsFull, 1);
    return {};
  }
  const uint32_t of = recording.load(std::memory_order_relaxed);
  Pair& pair = pairs[number];
  const uint64_t before = pair.state.load(std::memory_order_acquire);
  if (before % kPhases == kBusy || !make_busy(pair, before, of)) {  // an op that hung since a recording before this one
    events_api->lose(Lost::CudaEventFailed, 1);
    return {};
  }
  const bool recorded = record_event(&pair.device, &pair.begin);
  pair.state.store(state(of, recorded ? kBegun : kUnused), std::memory_order_release);
  return recorded ? TimedOp{of, number + 1} : TimedOp{};
}

void end_timed_op(const TimedOp& op) {
  if (!op.number || !live.load(std::memory_order_acquire)) return;
  Pair& pair = pairs[op.number - 1];
  if (!make_busy(pair, state(op.recording, kBegun), op.recording)) return;
  const bool recorded = record_event(nullptr, &pair.end);
  pair.id = op.id;
  pair.state.store(state(op.recording, recorded ? kEnded : kBegun), std::memory_order_release);
}

void stop_device_times() {
  if (!live.exchange(false, std::memory_order_acq_rel)) return;
  read_all(std::min(begun.load(std::memory_order_relaxed), kTimedOpsMax));
}

}  // namespace profd::torch_observer
