#include "collector.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <vector>

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "buffers.h"
#include "library.h"
#include "walk.h"

namespace profd::cupti {
namespace {

constexpr int kFlushSeconds = 1;
constexpr int64_t kClockTolerance = 1'000'000;  // ns by which CUPTI's clock may differ from CLOCK_REALTIME

struct Recorded {
  Activity kind;
  const char* name;  // in sentences
};
constexpr Recorded kRecorded[] = {
    {Activity::Runtime, "CUDA runtime calls"},
    {Activity::Driver, "CUDA driver calls"},
    {Activity::Kernel, "kernels"},
    {Activity::Memcpy, "copies"},
    {Activity::MemcpyPeer, "copies between GPUs"},
    {Activity::Memset, "memsets"},
    {Activity::Synchronization, "synchronizations"},
    {Activity::Overhead, "CUPTI's own costs"},
};

// Everything of one process. Never destroyed: CUPTI may call back while the process ends.
struct Session {
  const Functions* cupti = nullptr;
  Walker* walker = nullptr;  // never freed: a buffer may complete at any time
  Buffers buffers;
  Subscriber subscriber = nullptr;
  std::vector<Activity> enabled;
  bool registered = false;
  bool armed = false;
  int64_t clock_error_ns = 0;
  uint32_t version = 0;
  pid_t pid = 0;  // that first armed: CUDA does not live on in a child

  std::mutex mutex;  // of arm and stop
  std::mutex flushing_mutex;
  std::condition_variable flushing_changed;
  bool flush_wanted = false;
  pthread_t flusher{};
};

Session& session() {
  static Session* const one = new Session;
  return *one;
}

// --- what CUPTI calls ---

void on_request(uint8_t** buffer, size_t* bytes, size_t* records_max) {
  *buffer = session().buffers.take();
  *bytes = *buffer ? Buffers::kBytes : 0;
  *records_max = 0;  // as many as fit
}

void on_complete(Context context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  Session& one = session();
  if (!buffer) return;
  one.walker->walk(buffer, valid);
  size_t dropped = 0;
  if (one.cupti->dropped_records(context, stream, &dropped) == kSuccess && dropped)
    one.walker->dropped(dropped);
  one.buffers.give_back(buffer, valid);
}

void on_event(void*, uint32_t, uint32_t, const void*) {}  // a subscription needs one; nothing is enabled for it

// --- the flusher: CUPTI hands buffers over when they are full; a slow process fills none for minutes ---

void* flush_now_and_then(void*) {
  Session& one = session();
  std::unique_lock lock(one.flushing_mutex);
  while (one.flush_wanted) {
    one.flushing_changed.wait_for(lock, std::chrono::seconds(kFlushSeconds));
    if (!one.flush_wanted) break;
    lock.unlock();
    one.cupti->flush_all(0);
    lock.lock();
  }
  return nullptr;
}

bool start_flusher() {
  Session& one = session();
  one.flush_wanted = true;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&one.flusher, nullptr, flush_now_and_then, nullptr) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  one.flush_wanted = started;
  return started;
}

void stop_flusher() {
  Session& one = session();
  {
    std::lock_guard lock(one.flushing_mutex);
    if (!one.flush_wanted) return;
    one.flush_wanted = false;
  }
  one.flushing_changed.notify_all();
  pthread_join(one.flusher, nullptr);
}

// --- arming ---

int64_t realtime_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// How far CUPTI's clock is from CLOCK_REALTIME: 0 where they cannot be told apart. libkineto makes it count ticks of
// the TSC in processes that it has profiled.
int64_t clock_error(const Functions& cupti) {
  int64_t best = INT64_MAX;
  for (int i = 0; i < 5; i++) {
    uint64_t there = 0;
    const int64_t before = realtime_ns();
    if (cupti.get_timestamp(&there) != kSuccess) return INT64_MAX;
    const int64_t after = realtime_ns(), here = static_cast<int64_t>(there);
    const int64_t off = here < before ? before - here : here > after ? here - after : 0;
    if (off < best) best = off;
  }
  return best;
}

Outcome refused(std::string why, std::string holder = {}) {
  Outcome outcome;
  outcome.why = std::move(why);
  outcome.holder = std::move(holder);
  return outcome;
}

Outcome subscribe(const Functions& cupti, Subscriber* subscriber) {
  char holder[128] = "";
  Result result;
  if (cupti.subscribe_v2) {
    SubscriberParams params{sizeof params, "profd", holder, sizeof holder};
    result = cupti.subscribe_v2(subscriber, on_event, nullptr, &params);
  } else {
    result = cupti.subscribe(subscriber, on_event, nullptr);
  }
  holder[sizeof holder - 1] = '\0';
  switch (result) {
    case kSuccess: return {.armed = true, .why = {}, .holder = {}, .notes = {}};
    case kOtherSubscriber:
      return refused(std::string("another profiler holds CUPTI in this process") + (holder[0] ? ": " : "") + holder +
                         "; stop it, or start the process without it",
                     holder);
    case kNoPrivilege:
      return refused("the driver lets only administrators profile (NVreg_RestrictProfilingToAdminUsers=0 allows everybody)");
    case kNotInitialized:
      return refused("CUPTI does not work with this driver (" + describe(cupti, result) + ")");
    default:
      return refused("CUPTI could not be subscribed to: " + describe(cupti, result));
  }
}

// What could not be turned on, for people; empty: all was.
std::string enable(Session& one, bool graph_nodes) {
  std::string missing;
  one.enabled.clear();
  const auto turn_on = [&](Activity kind, const char* name) {
    const Result result = one.cupti->enable(kind);
    if (result == kSuccess)
      one.enabled.push_back(kind);
    else
      missing += std::string(missing.empty() ? "" : "; ") + name + " are not recorded: " + describe(*one.cupti, result);
  };
  for (const Recorded& wanted : kRecorded) turn_on(wanted.kind, wanted.name);
  if (!graph_nodes) turn_on(Activity::GraphTrace, "CUDA graphs as a whole");
  return missing;
}

void disable(Session& one) {
  for (const Activity kind : one.enabled) one.cupti->disable(kind);
  one.enabled.clear();
}

bool records_devices(const Session& one) {
  for (const Activity kind : one.enabled)
    if (kind == Activity::Kernel) return true;
  return false;
}

void register_once(Session& one) {
  if (one.registered) return;
  uint8_t yes = 1;
  size_t bytes = sizeof yes;
  one.cupti->set_attribute(kAttributeZeroedBuffers, &bytes, &yes);
  if (one.cupti->set_thread_id_type) one.cupti->set_thread_id_type(kThreadIdsOfSystem);
}

}  // namespace

Outcome arm(const recorder::Api& api, bool graph_nodes) {
  Session& one = session();
  if (one.pid != 0 && one.pid != getpid())
    return refused("it was forked from a process that CUDA was recorded in, and CUDA does not work in such a child");
  std::lock_guard lock(one.mutex);
  one.pid = getpid();
  if (one.armed) return refused("it records already");
  std::string why;
  one.cupti = library(&why);
  if (!one.cupti) return refused(why);
  const uint32_t major = one.cupti->get_version(&one.version) == kSuccess ? cuda_major(one.version) : 0;
  if (major != 12 && major != 13)
    return refused("its CUPTI has version " + std::to_string(one.version) + "; known are those of CUDA 12 and 13");
  Outcome outcome = subscribe(*one.cupti, &one.subscriber);
  if (!outcome.armed) return outcome;

  one.clock_error_ns = clock_error(*one.cupti);
  if (one.clock_error_ns > kClockTolerance) {
    one.cupti->unsubscribe(one.subscriber);
    return refused("CUPTI's clock in this process is not the system's (another profiler has changed it); restart the process");
  }
  if (!one.walker || !one.walker->writes_to(api)) one.walker = new Walker(*one.cupti, api);
  one.walker->reset_counts();
  register_once(one);
  // Each time: whoever registered last is called, and libkineto may have been since.
  const Result result = one.cupti->register_callbacks(on_request, on_complete);
  one.registered = true;
  if (result == kSuccess) outcome.notes = enable(one, graph_nodes);
  if (result != kSuccess || !records_devices(one)) {
    disable(one);
    one.cupti->unsubscribe(one.subscriber);
    return refused(result != kSuccess ? "CUPTI takes no buffers: " + describe(*one.cupti, result) : outcome.notes);
  }
  one.armed = true;
  if (!start_flusher()) outcome.notes += "; buffers are handed over only when they are full: no thread could be started";
  return outcome;
}

void stop() {
  Session& one = session();
  if (one.pid != getpid()) return;  // never armed, or a fork child, where its locks may be held for good
  std::lock_guard lock(one.mutex);
  if (!one.armed) return;
  stop_flusher();
  disable(one);
  wait_for_devices();  // a kernel that still runs would be handed over without an end, and never again
  one.cupti->flush_all(0);
  one.cupti->flush_all(kFlushForced);
  one.cupti->unsubscribe(one.subscriber);
  one.subscriber = nullptr;
  one.armed = false;
  one.buffers.trim();
}

std::string report() {
  Session& one = session();
  if (!one.walker) return {};
  const Counts& counts = one.walker->counts;
  std::string lines;
  const auto line = [&](const char* key, uint64_t value) {
    lines += std::string(key) + "=" + std::to_string(value) + "\n";
  };
  line("gpu.cupti_version", one.version);
  line("gpu.clock_error_ns", static_cast<uint64_t>(one.clock_error_ns));
  line("gpu.records", counts.records);
  line("gpu.device_events", counts.device);
  line("gpu.launches", counts.launches);
  line("gpu.filtered", counts.filtered);
  line("gpu.bad_times", counts.bad_times);
  line("gpu.unknown", counts.unknown);
  line("gpu.late", counts.late);
  line("gpu.dropped", counts.dropped);
  line("gpu.buffers_refused", one.buffers.refused());
  return lines;
}

}  // namespace profd::cupti
