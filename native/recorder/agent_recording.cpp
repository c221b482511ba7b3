#include "agent_recording.h"

#include <algorithm>

#include <time.h>

#include "recorder.h"
#include "step_window.h"
#include "steps.h"

namespace profd::agent {
namespace {

constexpr uint64_t kArenaBytesMin = uint64_t{1} << 20;
constexpr uint64_t kWindowNsMax = uint64_t{24} * 3600 * 1'000'000'000;
constexpr Milliseconds kStatusEvery = 1'000;
constexpr Milliseconds kStatusEveryGuarded = 200;  // where somebody watches what it costs
constexpr uint64_t kStepsForMedian = 3;             // fewer before the recording are no measure of those during it
constexpr uint64_t kPausedNs = 1'000'000'000;       // a step that runs for so long ...
constexpr uint64_t kPausedMedians = 10;             // ... and for so many medians: the program does something else
constexpr Milliseconds kHookWait = 60'000;
constexpr Milliseconds kRunPostedAgain = 1'000;  // where no thread could be started
constexpr Milliseconds kReleaseAgain = 20;
constexpr std::string_view kUnbegun = "it had not begun when the recording ended, because that was too soon";
constexpr std::string_view kGil = " or the program kept the GIL: record for longer";
constexpr std::string_view kGilOrQueue =  // seen on an H100: docs/gpu.md
    ", the program kept the GIL, or CUPTI and the program's CUDA calls waited for work queued on the GPU: record for longer";

uint64_t dropped(const recorder::Totals& totals) {
  uint64_t sum = 0;
  for (const uint64_t lost : totals.lost) sum += lost;
  return sum;
}

recorder::Steps steps_since(uint64_t since) { return recorder::steps_since(since, recorder::monotonic_ns()); }

// 0: not known. What was measured before a pause may be hours old.
uint64_t median_before(const recorder::Steps& steps) {
  const bool paused = !steps.running_for || steps.running_for > std::max(kPausedNs, kPausedMedians * steps.median_ns);
  return paused || steps.known < kStepsForMedian ? 0 : steps.median_ns;
}

uint64_t real_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct Option {
  std::string_view name;
  uint32_t sources;  // that record for it
  uint32_t dropped;  // that LIMIT turns off with it
};
constexpr Option kOptions[] = {
    {"ranges", recorder::kRanges, recorder::kRanges},
    {"shapes", 0, 0},
    {"force", 0, 0},
    {"stacks", recorder::kPython, recorder::kPython},
    {"c_calls", recorder::kPython, 0},
    {"modules", recorder::kPython, 0},
    {"torch", recorder::kOps, recorder::kOps},
    {"ops", recorder::kOps, recorder::kOps},  // LIMIT's word for it
    {"flops", recorder::kOps, 0},
    {"memory", recorder::kMemory, recorder::kMemory},
    {"cuda", recorder::kGpu, recorder::kGpu},
    {"gpu_fallback", 0, 0},
};

uint32_t sources_of(std::string_view options, uint32_t Option::*which = &Option::sources) {
  uint32_t sources = 0;
  for (const Option& option : kOptions)
    if (lists(options, option.name)) sources |= option.*which;
  return sources;
}

bool known(std::string_view name) {
  return std::any_of(std::begin(kOptions), std::end(kOptions), [&](const Option& o) { return o.name == name; });
}

// Calls use(name) for each option, without its value.
template <typename Use>
void each_option(std::string_view options, Use use) {
  while (!options.empty()) {
    const std::string_view item = options.substr(0, options.find(','));
    if (!item.empty()) use(item.substr(0, item.find(':')));
    options.remove_prefix(std::min(item.size() + 1, options.size()));
  }
}

bool by_itself(std::string_view name) { return name == "ranges" || name == "shapes" || name == "force"; }

std::string not_honoured(std::string_view options, std::string_view hooked) {
  std::string sentences;
  each_option(options, [&](std::string_view name) {
    if (by_itself(name) || (known(name) && lists(hooked, name))) return;
    if (!sentences.empty()) sentences += "; ";
    sentences.append(name).append(": this process cannot record it");
  });
  return sentences;
}

}  // namespace

Milliseconds now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Milliseconds{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

int Recording::descriptor() const { return recorder::arena_fd(); }

bool Recording::arm(const Frame& frame) {
  const auto arena_bytes = frame.fields.number("arena", 0);
  const auto strings_bytes = frame.fields.number("strings", 0);
  const auto window_ns = frame.fields.number("window", 0);
  if (!arena_bytes || !strings_bytes || !window_ns || frame.epoch == 0) return false;
  if (*arena_bytes < kArenaBytesMin || *arena_bytes > recorder::kArenaBytesMax || *strings_bytes > *arena_bytes / 2 ||
      *strings_bytes > recorder::kStringsBytesMax || *window_ns > kWindowNsMax)
    return fail(frame.epoch, "arena, strings or window is beyond what this agent accepts"), true;
  if (phase_ == Phase::Stopped) let_go();  // whoever arms anew needs it no longer
  if (phase_ == Phase::Releasing) return fail(frame.epoch, "the arena before is still in use; try again"), true;
  if (phase_ != Phase::Idle) return fail(frame.epoch, "it is armed already, by another capture"), true;
  if (!begin(frame, *arena_bytes, *strings_bytes)) return true;
  if (*window_ns) window_end_ = now_ms() + static_cast<Milliseconds>(*window_ns / 1'000'000) + settings_.grace_ms;
  return true;
}

bool Recording::begin(const Frame& frame, uint64_t arena_bytes, uint64_t strings_bytes) {
  const std::string_view options = frame.fields.text("options");
  std::string why;
  recorder::release();  // of an agent that was stopped while a thread was writing
  sources_ = sources_of(options);
  const bool at_step = !frame.fields.text("begin_step").empty();
  if (!recorder::arm({frame.epoch, arena_bytes, strings_bytes, at_step ? 0 : sources_}, &why))
    return fail(frame.epoch, why.c_str()), false;
  if (at_step && !open_sources(frame)) return false;
  waits_for_step_ = at_step;
  after_.end();  // from here on steps are recorded again
  first_ns_ = real_ns();
  const recorder::Steps steps = steps_since(0);
  steps_before_ = steps_told_ = steps.count + (steps.running_for != 0);  // the one that runs is recorded in part
  step_ns_before_ = median_before(steps);
  step_from_ = recorder::steps_begun();
  cost_.begin(lists(options, "shapes"));
  armed_at_ = now_ms();
  limits_ = 0;
  epoch_ = frame.epoch;
  left_ = {};
  phase_ = Phase::Armed;
  packet_.begin(Type::Armed, epoch_);
  packet_.add("first", first_ns_);
  packet_.add("not_honoured", not_honoured(options, settings_.hooked));
  link_.send(packet_, recorder::arena_fd());  // where it fails, the next HELLO brings it
  status_every_ = frame.fields.text("max_overhead").empty() ? kStatusEvery : kStatusEveryGuarded;
  next_status_ = now_ms() + status_every_;
  window_end_ = hook_end_ = kNever;
  requests_.finish = nullptr;
  requests_.records_at_stop = false;
  {
    std::lock_guard lock(requests_.mutex);
    requests_.notes.clear();
    requests_.begun.clear();
  }
  armed_with_.assign(frame.body);
  each_option(options, [&](std::string_view name) { hooked_ |= !by_itself(name) && lists(settings_.hooked, name); });
  const auto iterations = frame.fields.number("iterations", 0);
  hooked_ |= iterations.value_or(0) != 0 && lists(settings_.hooked, "iterations");
  arms_done_before_ = requests_.arms_done;
  resting_ = resting_ && !hooked_;
  if (hooked_) post(Hook::Armed);
  return true;
}

// The sources record from a step on, or the answer is that it was missed.
bool Recording::open_sources(const Frame& frame) {
  const auto step = frame.fields.number("begin_step", 0), steps = frame.fields.number("iterations", 0);
  const recorder::Session session = recorder::api.state.live.load(std::memory_order_relaxed);
  if (step && steps && recorder::await_window({*step, *steps, sources_, session})) return true;
  recorder::disarm();
  recorder::release();
  const std::string at = std::to_string(recorder::steps_begun() - 1);
  const std::string asked(frame.fields.text("begin_step"));
  fail(frame.epoch, ("missed: step " + asked + " was asked for, and step " + at + " runs already").c_str());
  return false;
}

// Once the step has begun that was waited for: what was noted as the recording began holds from there on.
void Recording::look_at_window() {
  if (!waits_for_step_) return;
  const recorder::Opened opened = recorder::opened_window();
  if (!opened.real_ns) return;
  waits_for_step_ = false;
  first_ns_ = opened.real_ns;
  step_from_ = opened.step;
  steps_before_ = steps_told_ = opened.ended;
}

void Recording::tell_steps(uint64_t question) const {
  const recorder::Steps steps = steps_since(0);
  packet_.begin(Type::Steps, question);
  // Optimizers stop counting when the capture that waits for it is over: nobody else may wait for their numbers.
  packet_.add("begun", recorder::optimizers_number() ? 0 : recorder::steps_begun());
  packet_.add("running_ns", steps.running_for);
  if (steps.median_ns) packet_.add("step_ns", steps.median_ns);
  link_.send(packet_);
}

void Recording::fail(uint64_t epoch, const char* why) {
  packet_.begin(Type::Failed, epoch);
  packet_.add("why", std::string_view(why));
  link_.send(packet_);
}

void Recording::stop(uint64_t epoch) {
  if (epoch == epoch_) finish("stop");
}

void Recording::limit(const Frame& frame) {
  if (frame.epoch != epoch_ || phase_ != Phase::Armed) return;
  const std::string_view drop = frame.fields.text("drop");
  limits_++;
  cost_.count(recorder::totals().recorded, recorder::mix(), sources_);
  sources_ &= ~sources_of(drop, &Option::dropped);
  if (!recorder::limit_window(sources_)) recorder::set_sources(sources_);
  if (!hooked_ || !settings_.post) return;
  settings_.post(Hook::Limited, drop);
  run_posted();
}

void Recording::finish(const char* reason) {
  if (phase_ != Phase::Armed) return;
  if (!hooked_ || !requests_.records_at_stop) return disarm(reason);
  phase_ = Phase::Stopping;
  reason_ = reason;
  hook_end_ = now_ms() + kHookWait;
  post_stop();
}

void Recording::disarm(const char* reason) {
  const bool posted = phase_ == Phase::Stopping;
  recorder::forget_window();
  recorder::disarm();
  look_at_window();
  last_ns_ = real_ns();
  phase_ = Phase::Stopped;
  reason_ = reason;
  window_end_ = hook_end_ = kNever;
  const uint64_t step_ns = steps_since(steps_before_).median_ns;
  after_.begin(epoch_, step_ns ? step_ns : step_ns_before_, settings_.after_ms);  // before anybody knows of the end
  if (link_.connected()) tell_stopped();
  next_status_ = kNever;
  if (hooked_ && !posted) post_stop();
  if (hooked_) return;
  disarmed_ = epoch_;
  tell_disarmed();
}

void Recording::post_stop() {
  undone_.push_back(epoch_);
  post(Hook::Stopping);
}

void Recording::hear_of_stops() {
  while (stops_heard_ != requests_.stops_done) {
    stops_heard_++;
    if (undone_.empty()) continue;
    disarmed_ = undone_.front();
    undone_.erase(undone_.begin());
    tell_disarmed();
  }
}

void Recording::tell_disarmed() {
  if (!link_.connected() || disarmed_ == 0) return;
  packet_.begin(Type::Disarmed, disarmed_);
  link_.send(packet_);
}

void Recording::tell_stopped() {
  packet_.begin(Type::Stopped, epoch_);
  packet_.add("reason", std::string_view(reason_));
  packet_.add("first", first_ns_);
  packet_.add("last", last_ns_);
  steps_told_ = steps_before_;  // of all of them, not of the last moment
  add_totals();
  link_.send(packet_);
}

void Recording::tell_progress(Milliseconds now) {
  next_status_ = now + status_every_;
  recorder::tick();
  tell_status();
}

void Recording::tell_status() {
  packet_.begin(Type::Status, epoch_);
  add_totals();
  link_.try_send(packet_);  // totals: the next one says all that this one would have
}

void Recording::add_totals() {
  const recorder::Totals totals = recorder::totals();
  packet_.add("events", totals.recorded);
  packet_.add("dropped", dropped(totals));
  packet_.add("lasted_ms", static_cast<uint64_t>(now_ms() - armed_at_));
  packet_.add("limits", limits_);
  add_cost(totals.recorded);
  add_steps();
  if (phase_ == Phase::Stopped) add_unbegun();
  std::lock_guard lock(requests_.mutex);
  for (const auto& [key, value] : requests_.notes) packet_.add(key, std::string_view(value));
}

// At the end, of a window that was too short for it or a job that kept the GIL.
void Recording::add_unbegun() {
  if (!hooked_ || requests_.arms_done != arms_done_before_) return;
  std::lock_guard lock(requests_.mutex);
  std::string sentences;
  const auto add = [&](std::string_view name) {
    const auto& begun = requests_.begun;
    if (by_itself(name) || !lists(settings_.hooked, name) || std::find(begun.begin(), begun.end(), name) != begun.end())
      return;
    if (!sentences.empty()) sentences += "; ";
    const bool cuda = name.substr(0, name.find(':')) == "cuda";
    sentences.append(name).append(": ").append(kUnbegun).append(cuda ? kGilOrQueue : kGil);
  };
  Fields fields;
  if (!fields.parse(armed_with_)) return;
  each_option(fields.text("options"), add);
  if (fields.number("iterations", 0).value_or(0) != 0) add("iterations");
  if (sentences.empty()) return;
  for (auto& [key, text] : requests_.notes) {
    if (key != "not_honoured") continue;
    if (text.find(kUnbegun) == text.npos) text.append("; ").append(sentences);
    return;
  }
  requests_.notes.emplace_back("not_honoured", sentences);
}

void Recording::add_cost(uint64_t events) {
  cost_.count(events, recorder::mix(), sources_);
  packet_.add_seconds("seconds", cost_.nanoseconds());
  for (int i = 0; i < recorder::kSources; i++) {
    const uint64_t spent = cost_.nanoseconds_of(i);
    if (spent) packet_.add_seconds(std::string("seconds.").append(kSourceNames[i]), spent);
  }
}

void Recording::add_program_steps() {
  const uint64_t begun = recorder::steps_begun();
  if (!begun) return;
  packet_.add("step_from", step_from_);
  packet_.add("step_to", std::max(step_from_, begun - 1));
}

void Recording::add_steps() {
  look_at_window();
  if (waits_for_step_) {
    packet_.add("awaits_step", uint64_t{1});
    packet_.add("at_step", recorder::steps_begun());
    return;
  }
  add_program_steps();
  const recorder::Steps steps = steps_since(steps_told_);
  packet_.add("steps", std::max(steps.count, steps_before_) - steps_before_);
  if (steps.median_ns) packet_.add("step_ns", steps.median_ns);
  if (step_ns_before_) packet_.add("step_ns_before", step_ns_before_);
  steps_told_ = std::max(steps.count, steps_before_);
}

void Recording::release(uint64_t epoch) {
  if (epoch != epoch_) return;
  if (phase_ == Phase::Armed || phase_ == Phase::Stopping) disarm("stop");
  if (phase_ == Phase::Stopped) let_go();
}

void Recording::let_go() {
  phase_ = Phase::Releasing;
  if (!recorder::release()) return;  // keep() tries again
  phase_ = Phase::Idle;
  epoch_ = 0;
  lost_end_ = next_status_ = kNever;
  if (hooked_) post(Hook::Released);
  hooked_ = false;
}

void Recording::end(const char* reason) {
  if (phase_ == Phase::Armed || phase_ == Phase::Stopping) disarm(reason);
  if (phase_ == Phase::Stopped || phase_ == Phase::Releasing) let_go();
}

// Nobody has come for it. The next daemon hears how much is lost with the arena, whatever of it had been drained.
void Recording::leave() {
  const uint64_t epoch = phase_ == Phase::Releasing ? 0 : epoch_;
  if (phase_ == Phase::Armed || phase_ == Phase::Stopping) disarm("window");
  const recorder::Totals totals = recorder::totals();
  if (epoch) left_ = {epoch, totals.recorded, dropped(totals)};
  end("window");
}

void Recording::daemon_lost() {
  if (phase_ != Phase::Idle && lost_end_ == kNever) lost_end_ = now_ms() + settings_.grace_ms;
}

void Recording::daemon_back() {
  lost_end_ = kNever;
  if (phase_ == Phase::Stopped) tell_stopped();
  tell_disarmed();
}

void Recording::rest() {
  if (phase_ == Phase::Idle && resting_) post(Hook::Rested);  // else it comes with the end of the recording
}

Milliseconds Recording::keep() {
  hear_of_stops();
  const Milliseconds now = now_ms();
  if (now >= run_posted_again_) run_posted();
  const Milliseconds due = keep_phase(now);
  if (after_.keep(now) && !resting_) {
    resting_ = true;
    post(Hook::Rested);
  }
  return std::min({due, after_.due(), run_posted_again_});
}

Milliseconds Recording::keep_phase(Milliseconds now) {
  if (phase_ == Phase::Idle) return kNever;
  if (phase_ == Phase::Releasing) let_go();
  if (const char* reason = requests_.finish.exchange(nullptr)) finish(reason);
  if (phase_ == Phase::Stopping && (undone_.empty() || now >= hook_end_)) disarm(reason_);
  if (now >= window_end_) finish("window");
  if (now >= lost_end_) leave();
  if (now >= next_status_) tell_progress(now);
  if (phase_ == Phase::Idle) return kNever;
  if (phase_ == Phase::Releasing) return now + kReleaseAgain;
  return std::min({window_end_, next_status_, lost_end_, hook_end_});
}

void Recording::forget() {
  phase_ = Phase::Idle;
  epoch_ = disarmed_ = 0;
  left_ = {};
  hooked_ = false;
  resting_ = true;
  after_.forget();
  undone_.clear();
  window_end_ = next_status_ = lost_end_ = hook_end_ = run_posted_again_ = kNever;
}

void Recording::post(Hook hook) {
  if (!settings_.post) return;
  settings_.post(hook, armed_with_);
  run_posted();
}

void Recording::run_posted() {
  const bool runs = !settings_.run_posted || settings_.run_posted();
  run_posted_again_ = runs ? kNever : now_ms() + kRunPostedAgain;
}

}  // namespace profd::agent
