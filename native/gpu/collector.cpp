#include "collector.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "buffers.h"
#include "clock_fit.h"
#include "detach.h"
#include "enclosing.h"
#include "library.h"
#include "state.h"
#include "walk.h"

namespace profd::cupti {
namespace {

constexpr int kFlushSeconds = 1;
constexpr std::chrono::seconds kWait{5};              // for kernels that still run at the end
constexpr std::chrono::milliseconds kQuiet{100};      // without a record, of buffers whose number is not known
constexpr std::chrono::milliseconds kPauseMost{20};   // between two looks
constexpr int kDetachMilliseconds = 200;  // for a call that CUPTI can be ended in

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
struct Collecting {
  const Functions* cupti = nullptr;
  Walker* walker = nullptr;  // never freed: a buffer may complete at any time
  Buffers buffers;
  Subscriber subscriber = nullptr;
  std::vector<Activity> enabled;
  ClockFit clock;
  recorder::Api* api = nullptr;  // of the recording that runs
  bool elsewhere = false;  // buffers are another library's
  bool zeroed = false;     // what CUPTI was told of buffers; its default
  bool subscribed = false;  // once, and CUPTI has not left the process since
  uint64_t subscribe_ms = 0;  // of the recording that runs or ran last
  bool registered = false;
  bool armed = false;
  bool detach = false;          // at the end
  bool graphs = false;          // the program has used CUDA graphs while it was recorded
  const char* after = "stays";  // what became of CUPTI at the end
  State state = State::Ok;  // of the recording that runs or ran last
  std::string holder;       // another tool that had CUPTI, by the name it gives
  std::string notes;        // what turned out since it was armed, sentences joined by ';'
  uint32_t version = 0;
  pid_t pid = 0;  // that first armed: CUDA does not live on in a child

  std::mutex mutex;  // of arm, stop and report
  std::mutex flushing_mutex;
  std::condition_variable flushing_changed;
  bool flush_wanted = false;
  pthread_t flusher{};
};

Collecting& session() {
  static Collecting* const one = new Collecting;
  return *one;
}

// --- what CUPTI calls ---

void on_request(uint8_t** buffer, size_t* bytes, size_t* records_max) {
  *buffer = session().buffers.take();
  *bytes = *buffer ? Buffers::kBytes : 0;
  *records_max = 0;  // as many as fit
}

void on_complete(Context context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  Collecting& one = session();
  if (!buffer) return;
  one.walker->walk(buffer, valid);
  size_t dropped = 0;
  if (one.cupti->dropped_records(context, stream, &dropped) == kSuccess && dropped)
    one.walker->dropped(dropped);
  one.buffers.give_back(buffer, valid);
}

// --- the flusher: CUPTI hands buffers over when they are full; a slow process fills none for minutes ---

void* flush_now_and_then(void*) {
  Collecting& one = session();
  std::unique_lock lock(one.flushing_mutex);
  while (one.flush_wanted) {
    one.flushing_changed.wait_for(lock, std::chrono::seconds(kFlushSeconds));
    if (!one.flush_wanted) break;
    lock.unlock();
    one.cupti->flush_all(0);
    one.clock.renew(*one.cupti);
    lock.lock();
  }
  return nullptr;
}

bool start_flusher() {
  Collecting& one = session();
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
  Collecting& one = session();
  {
    std::lock_guard lock(one.flushing_mutex);
    if (!one.flush_wanted) return;
    one.flush_wanted = false;
  }
  one.flushing_changed.notify_all();
  pthread_join(one.flusher, nullptr);
}

// --- arming ---

Outcome refused(State state, std::string why) {
  session().state = state;
  return {.armed = false, .why = std::move(why), .notes = {}};
}

// A name that another tool gives itself, as a part of a line of ours.
std::string plain_text(const char* name) {
  std::string text = name;
  for (char& each : text)
    if (static_cast<unsigned char>(each) < ' ' || each == 0x7f || each == ';' || each == '=') each = ' ';
  return text;
}

Outcome subscribe(const Functions& cupti, Subscriber* subscriber) {
  char holder[128] = "";
  Result result;
  const auto begin = std::chrono::steady_clock::now();
  if (cupti.subscribe_v2) {
    SubscriberParams params{sizeof params, "profd", holder, sizeof holder};
    result = cupti.subscribe_v2(subscriber, on_call, nullptr, &params);
  } else {
    result = cupti.subscribe(subscriber, on_call, nullptr);
  }
  holder[sizeof holder - 1] = '\0';
  const auto took = std::chrono::steady_clock::now() - begin;
  session().subscribe_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  const State state = state_of(result);
  session().subscribed |= state == State::Ok;
  if (state == State::Ok) return {.armed = true, .why = {}, .notes = {}};
  session().holder = plain_text(holder);
  return refused(state, sentence_of(state, describe(cupti, result), session().holder));
}

void join(std::string* sentences, const std::string& more) {
  if (!more.empty()) *sentences += (sentences->empty() ? "" : "; ") + more;
}

// What could not be turned on, for people; empty: all was. `worst` is what stood in the way of it.
std::string enable(Collecting& one, bool graph_nodes, State* worst) {
  std::string missing;
  *worst = State::Ok;
  one.enabled.clear();
  const auto turn_on = [&](Activity kind, const char* name) {
    const Result result = one.cupti->enable(kind);
    if (result == kSuccess) return one.enabled.push_back(kind);
    const State state = state_of(result);
    if (*worst == State::Ok) *worst = state;
    const std::string described = describe(*one.cupti, result);
    join(&missing, std::string(name) + " are not recorded: " +
                       (state == State::Failed ? described : sentence_of(state, described)));
  };
  for (const Recorded& wanted : kRecorded) turn_on(wanted.kind, wanted.name);
  if (!graph_nodes) turn_on(Activity::GraphTrace, "CUDA graphs as a whole");
  // Threads that have the GIL push ids, and must not wait for a CUPTI whose callbacks wait for the GIL.
  if (one.cupti->push_external && one.cupti->pop_external && !one.elsewhere)
    turn_on(Activity::ExternalCorrelation, "external ids");
  return missing;
}

// Whether CUPTI still knew them all: another tool may have ended it (cuptiFinalize).
bool disable(Collecting& one) {
  bool all = true;
  for (const Activity kind : one.enabled) all &= one.cupti->disable(kind) == kSuccess;
  one.enabled.clear();
  return all;
}

bool records(const Collecting& one, Activity wanted) {
  for (const Activity kind : one.enabled)
    if (kind == wanted) return true;
  return false;
}

// Our buffers come zeroed, those of others may not.
void tell_of_buffers(Collecting& one) {
  if (one.zeroed != one.elsewhere) return;
  uint8_t zeroed = one.zeroed = !one.elsewhere;
  size_t bytes = sizeof zeroed;
  one.cupti->set_attribute(kAttributeZeroedBuffers, &bytes, &zeroed);
}

void register_once(Collecting& one) {
  if (!one.registered && one.cupti->set_thread_id_type) one.cupti->set_thread_id_type(kThreadIdsOfSystem);
}

Outcome start(Collecting& one, recorder::Api& api, bool graph_nodes, RegisterElsewhere elsewhere) {
  Outcome outcome = subscribe(*one.cupti, &one.subscriber);
  if (!outcome.armed) return outcome;
  if (!one.clock.begin(*one.cupti)) {
    one.cupti->unsubscribe(one.subscriber);
    return refused(State::ForeignClock,
                   "CUPTI's clock in this process cannot be told (another profiler has changed it), restart the process");
  }
  if (!one.walker || !one.walker->writes_to(api)) one.walker = new Walker(*one.cupti, api, one.clock);
  one.walker->reset_counts();
  register_once(one);
  one.elsewhere = elsewhere != nullptr;
  tell_of_buffers(one);
  // Each time: whoever registered last is called, and libkineto may have been since.
  const Result result = elsewhere ? elsewhere() : one.cupti->register_callbacks(on_request, on_complete);
  one.registered = true;
  State worst = state_of(result);
  if (result == kSuccess) outcome.notes = enable(one, graph_nodes, &worst);
  if (result == kSuccess && records(one, Activity::Kernel)) return outcome;
  disable(one);
  one.cupti->unsubscribe(one.subscriber);
  return refused(worst,
                 result != kSuccess ? "CUPTI takes no buffers: " + describe(*one.cupti, result) : outcome.notes);
}

// --- the end ---

// Until CUPTI has no buffer with a record that is not complete; it keeps those of kernels that run. False: one still runs.
// CUDA is not asked: whoever waits for a context ends each graph that the program captures meanwhile, in whatever mode,
// with an error (docs/gpu.md).
bool wait_for_records(Collecting& one) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + kWait;
  auto last = Clock::now();
  uint64_t seen = one.walker->counts.records;
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kPauseMost)) {
    one.cupti->flush_all(0);
    const auto now = Clock::now();
    if (seen != one.walker->counts.records) seen = one.walker->counts.records, last = now;
    if (one.elsewhere ? now - last >= kQuiet : one.buffers.out() == 0) return true;
    if (now >= end) return false;
    std::this_thread::sleep_for(pause);
  }
}

// What turned out while it recorded; the first that holds is the state.
void conclude(Collecting& one, bool ended, bool still_ours, Result flushed) {
  const auto found = [&](State state, const std::string& sentence) {
    if (one.state == State::Ok) one.state = state;
    join(&one.notes, sentence);
  };
  const Counts& counts = one.walker->counts;
  if (counts.error != 0)
    found(State::GpuLost, "a call of the program's returned CUDA error " + std::to_string(counts.error) +
                              " (700 to 719: the program's own fault, otherwise look at dmesg for Xid errors), "
                              "what the GPU did after that is missing");
  if (const size_t out = one.buffers.out(); !still_ours || out != 0)
    found(State::TakenOver, "another profiler has begun in this process meanwhile and taken CUPTI over" +
                                (out ? ", " + std::to_string(out) + " buffers of records are lost" : std::string()) +
                                ", stop it, or capture when it is done");
  if (flushed != kSuccess)
    found(State::Failed, "CUPTI did not hand over the last records: " + describe(*one.cupti, flushed));
  if (counts.foreign_times != 0)
    found(State::ForeignClock, std::to_string(counts.foreign_times.load()) +
                                   " records have times of another clock and were left out (another profiler has "
                                   "changed CUPTI's), restart the process");
  if (!ended)
    found(State::StillRunning, "kernels still ran " + std::to_string(kWait.count()) +
                                   " s after the end, those are not in the trace");
  // Launches that were captured into a graph run when that does.
  if (counts.launches != 0 && counts.device == 0 && counts.graph_calls == 0 && one.buffers.out() == 0)
    found(State::NoKernels, std::to_string(counts.launches.load()) +
                                " launches and nothing that they ran: CUPTI is older than the GPU, or counters are "
                                "held by another tool (dcgmi profile --pause frees them)");
}

// CUPTI has left the process: what it was told is forgotten.
bool detached(Collecting& one) {
  one.graphs |= one.walker->counts.graph_calls != 0;
  const Detached found =
      one.graphs ? Detached::Graphs : detach(*one.cupti, one.subscriber, one.version, kDetachMilliseconds);
  one.after = code_of(found);
  if (found != Detached::Yes) return false;
  one.registered = one.zeroed = one.subscribed = false;
  return true;
}

// `waits`: for the kernels that run. One that does would be handed over without an end, and never again.
void end(Collecting& one, bool waits) {
  stop_flusher();
  enclose_no_more(*one.api);
  const bool still_ours = disable(one);
  const bool ended = !waits || !still_ours || wait_for_records(one);
  one.clock.renew(*one.cupti);
  one.cupti->flush_all(0);
  const Result flushed = one.cupti->flush_all(kFlushForced);
  const bool untouched = still_ours && flushed == kSuccess && one.buffers.out() == 0 && waits;
  if (!one.detach || !untouched || !detached(one)) one.cupti->unsubscribe(one.subscriber);
  one.subscriber = nullptr;
  one.armed = false;
  conclude(one, ended, still_ours, flushed);
  one.buffers.trim();
}

// One that Python loads later, from a wheel, may be another file.
bool may_load() { return is_mapped() || !dlsym(RTLD_DEFAULT, "Py_IsInitialized"); }

const Functions* known_library(Collecting& one, State* state, std::string* why) {
  const Functions* cupti = library(state, why);
  if (!cupti) return nullptr;
  const uint32_t major = cupti->get_version(&one.version) == kSuccess ? cuda_major(one.version) : 0;
  if (major == 12 || major == 13) return cupti;
  *state = State::UnknownCupti;
  *why = "its CUPTI has version " + std::to_string(one.version) +
         ", known are those of CUDA 12 and 13: install nvidia-cuda-cupti of one";
  return nullptr;
}

}  // namespace

void prepare() {
  Collecting& one = session();
  std::lock_guard lock(one.mutex);
  if (one.pid != 0 || one.subscribed || !may_load()) return;
  std::string why;
  State state;
  const Functions* cupti = known_library(one, &state, &why);
  Subscriber subscriber = nullptr;
  if (cupti && subscribe(*cupti, &subscriber).armed) cupti->unsubscribe(subscriber);
  one.state = State::Ok;
  one.holder.clear();
}

Outcome arm(recorder::Api& api, const Wishes& wishes, RegisterElsewhere elsewhere) {
  Collecting& one = session();
  if (one.pid != 0 && one.pid != getpid())
    return refused(State::Forked,
                   "it was forked from a process that CUDA was recorded in, and CUDA does not work in such a child");
  std::lock_guard lock(one.mutex);
  one.pid = getpid();
  if (one.armed) return refused(State::Failed, "it records already");
  one.state = State::Ok;
  one.notes.clear();
  one.holder.clear();
  std::string why;
  State state;
  one.cupti = known_library(one, &state, &why);
  if (!one.cupti) return refused(state, why);
  Outcome outcome = start(one, api, wishes.graph_nodes, elsewhere);
  if (!outcome.armed) return outcome;
  one.detach = wishes.detach && !elsewhere;
  one.after = "stays";
  one.armed = true;
  one.api = &api;
  if (records(one, Activity::ExternalCorrelation)) enclose_with(*one.cupti, api);
  if (elsewhere) join(&outcome.notes, "recorded by cupti-python: slow, can deadlock");
  if (!start_flusher()) join(&outcome.notes, "buffers are handed over only when they are full: no thread could be started");
  return outcome;
}

void stop() {
  Collecting& one = session();
  if (one.pid != getpid()) return;  // never armed, or a fork child, where its locks may be held for good
  std::lock_guard lock(one.mutex);
  if (one.armed) end(one, true);
}

void leave() {
  Collecting& one = session();
  if (one.pid != getpid()) return;
  std::lock_guard lock(one.mutex);
  if (!one.armed) return;
  end(one, false);
  if (one.state == State::Ok) one.state = State::TakenOver;
  join(&one.notes, "PyTorch's own profiler has begun in this process meanwhile, and CUPTI was left to it: what CUDA did "
                   "from then on is missing, capture when it is done");
}

void take(const uint8_t* const* records, size_t count) {
  Collecting& one = session();
  if (!one.walker) return;
  if (!records) return one.walker->dropped(count);
  one.walker->take(records, count);
  // Of all contexts: whose buffer it was is not told.
  size_t dropped = 0;
  if (one.cupti->dropped_records(nullptr, 0, &dropped) == kSuccess && dropped) one.walker->dropped(dropped);
}

std::string report() {
  Collecting& one = session();
  std::unique_lock lock(one.mutex, std::defer_lock);
  if (one.pid == 0 || one.pid == getpid()) lock.lock();  // in a fork child it may be held for good
  std::string lines = "gpu.state=" + std::string(code_of(one.state)) + "\n";
  if (!one.holder.empty()) lines += "gpu.holder=" + one.holder + "\n";
  if (!one.walker) return lines;
  const Counts& counts = one.walker->counts;
  const auto line = [&](const char* key, uint64_t value) {
    lines += std::string(key) + "=" + std::to_string(value) + "\n";
  };
  if (one.elsewhere) lines += "gpu.collector=cupti-python\n";
  line("gpu.cupti_version", one.version);
  line("gpu.subscribe_ms", one.subscribe_ms);
  lines += std::string("gpu.cupti_after=") + one.after + "\n";
  lines += "gpu.clock=" + std::string(one.clock.is_realtime() ? "realtime" : "fitted") + "\n";
  line("gpu.clock_error_ns", static_cast<uint64_t>(one.clock.error_ns()));
  lines += "gpu.clock_offset_ns=" + std::to_string(one.clock.offset_ns()) + "\n";
  line("gpu.clock_steps", one.clock.steps());
  line("gpu.records", counts.records);
  line("gpu.events", counts.events);
  line("gpu.device_events", counts.device);
  line("gpu.launches", counts.launches);
  line("gpu.filtered", counts.filtered);
  line("gpu.external", counts.external);
  line("gpu.bad_times", counts.bad_times);
  line("gpu.gone_names", counts.gone_names);
  line("gpu.unknown", counts.unknown);
  line("gpu.late", counts.late);
  line("gpu.dropped", counts.dropped);
  line("gpu.buffers_refused", one.buffers.refused());
  line("gpu.buffers_out", one.buffers.out());
  if (!one.notes.empty()) lines += "gpu.notes=" + one.notes + "\n";
  return lines;
}

}  // namespace profd::cupti
