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
  std::atomic<uint64_t> mark{0};   // the recorder's, of the op
  std::atomic<uint32_t> outer{0};  // number of the pair around it on its thread, 0: none
};

// What a thread has open. Pairs are numbered from 1.
struct Open {
  uint32_t recording;
  std::atomic<uint32_t> innermost;
  uint32_t prepared;  // for the op that is about to begin, 0: there is no room
  bool of_op;         // an op is about to begin
};
constexpr int kDepthMax = 128;  // ranges within ranges of which the innermost are looked for
constinit thread_local Open open_here{};

recorder::Api* events_api = nullptr;
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

// The number of a pair with its first event, or 0.
uint32_t begin_pair(uint32_t of) {
  const bool room = begun.load(std::memory_order_relaxed) < kTimedOpsMax;  // it never goes around
  const uint32_t at = room ? begun.fetch_add(1, std::memory_order_relaxed) : kTimedOpsMax;
  if (__builtin_expect(at >= kTimedOpsMax, 0)) {
    events_api->lose(Lost::CudaEventsFull, 1);
    return 0;
  }
  Pair& pair = pairs[at];
  const uint64_t before = pair.state.load(std::memory_order_acquire);
  if (before % kPhases == kBusy || !make_busy(pair, before, of)) {  // an op that hung since a recording before this one
    events_api->lose(Lost::CudaEventFailed, 1);
    return 0;
  }
  const bool recorded = record_event(&pair.device, &pair.begin);
  pair.state.store(state(of, recorded ? kBegun : kUnused), std::memory_order_release);
  return recorded ? at + 1 : 0;
}

void end_pair(Pair& pair, uint32_t of) {
  if (!make_busy(pair, state(of, kBegun), of)) return;
  const bool recorded = record_event(nullptr, &pair.end);
  pair.state.store(state(of, recorded ? kEnded : kBegun), std::memory_order_release);
}

// Of this thread, without what an earlier recording left in it; null: none is live.
Open* open_now() {
  if (!live.load(std::memory_order_acquire)) return nullptr;
  Open& here = open_here;
  const uint32_t now = recording.load(std::memory_order_relaxed);
  if (here.recording != now) {
    here.recording = now;
    here.innermost.store(0, std::memory_order_relaxed);
    here.of_op = false;
  }
  return &here;
}

void enter(uint64_t mark, uint64_t id) {
  Open* here = open_now();
  if (!here) return;
  const uint32_t number = here->of_op ? here->prepared : begin_pair(here->recording);
  if (!number) return;
  Pair& pair = pairs[number - 1];
  if (!make_busy(pair, state(here->recording, kBegun), here->recording)) return;
  pair.id = id;
  pair.mark.store(mark, std::memory_order_relaxed);
  pair.outer.store(here->innermost.load(std::memory_order_relaxed), std::memory_order_relaxed);
  here->innermost.store(number, std::memory_order_relaxed);
  pair.state.store(state(here->recording, kBegun), std::memory_order_release);
}

// What ends on another thread has no time: it is looked for among those of this one.
void leave(uint64_t mark) {
  Open* here = open_now();
  if (!here) return;
  std::atomic<uint32_t>* link = &here->innermost;
  for (int depth = 0; depth < kDepthMax; ++depth) {
    const uint32_t number = link->load(std::memory_order_relaxed);
    if (!number) return;
    Pair& pair = pairs[number - 1];
    if (pair.mark.load(std::memory_order_relaxed) == mark) {
      link->store(pair.outer.load(std::memory_order_relaxed), std::memory_order_relaxed);
      return end_pair(pair, here->recording);
    }
    link = &pair.outer;
  }
}

constexpr recorder::Enclosing kTimed = {enter, leave};

bool hear(const recorder::Enclosing* from, const recorder::Enclosing* to) {
  return events_api->state.enclosing.compare_exchange_strong(from, to);
}

// CUDA does not work in a child of a fork, and to destroy its parent's events is an error: they are left where they are.
void forget() {
  live.store(false, std::memory_order_relaxed);
  pairs = nullptr;
  hear(&kTimed, nullptr);
}

}  // namespace

void start_device_times(recorder::Api& api) {
  if (live.load(std::memory_order_relaxed)) return;
  if (!torch::profiler::impl::cudaStubs()->enabled()) throw std::runtime_error("this torch has no CUDA events");
  events_api = &api;
  static const int once = pthread_atfork(nullptr, nullptr, forget);
  (void)once;
  if (!pairs) pairs = new Pair[kTimedOpsMax];
  begun.store(0, std::memory_order_relaxed);
  recording.fetch_add(1, std::memory_order_relaxed);
  if (!hear(nullptr, &kTimed)) throw std::runtime_error("CUPTI's collector is told of ops and ranges already");
  live.store(true, std::memory_order_release);
}

void prepare_timed_op() {
  Open* here = open_now();
  if (!here) return;
  here->prepared = begin_pair(here->recording);
  here->of_op = true;
}

void settle_timed_op() { open_here.of_op = false; }

void stop_device_times() {
  if (!live.exchange(false, std::memory_order_acq_rel)) return;
  hear(&kTimed, nullptr);
  read_all(std::min(begun.load(std::memory_order_relaxed), kTimedOpsMax));
}

}  // namespace profd::torch_observer
