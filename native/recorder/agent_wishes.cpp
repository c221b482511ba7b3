#include "agent_wishes.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "recorder.h"
#include "step_window.h"
#include "steps.h"

namespace profd::agent {
namespace {

constexpr std::size_t kWaitingMost = 8;
constexpr std::size_t kGrantedMost = 16;
constexpr Milliseconds kApart = 1'000;   // between two requests of a program
constexpr Milliseconds kAnswer = 60'000;
constexpr uint64_t kLeadNs = 10'000'000'000;  // a recording gets ready within this, and waits no longer for its step

// The step at which it is looked next whether the wished one is near: half of the way, three quarters, seven eighths. By the
// step alone, so that ranks that step together ask together.
uint64_t next_look(uint64_t step, uint64_t begun) {
  uint64_t left = step / 2;
  while (left > 1 && step - left < begun) left /= 2;
  return step - std::max<uint64_t>(left, 1);
}

}  // namespace

uint64_t Wishes::ask(std::string_view lines, bool aloud, std::string* why) {
  std::lock_guard lock(mutex_);
  const Milliseconds now = now_ms();
  if (asked_at_ && now - asked_at_ < kApart) return *why = "this process asked for another within the same second", 0;
  if (waiting_.size() >= kWaitingMost) return *why = "eight requests of this process wait for an answer of profd", 0;
  asked_at_ = now;
  add(lines, aloud);
  return last_;
}

void Wishes::add(std::string_view lines, bool aloud) {
  waiting_.push_back({++last_, std::string(lines), now_ms() + kAnswer, false, aloud});
}

void Wishes::ask_at(StepWish wish) {
  std::lock_guard lock(mutex_);
  step_ = std::move(wish);
  recorder::watch_step(step_.begins ? next_look(step_.step, 0) : step_.step);
}

Granted Wishes::came_of(uint64_t number) {
  std::lock_guard lock(mutex_);
  for (const Granted& each : granted_)
    if (each.number == number) return each;
  return {};
}

// Asked at the first look at which the step is near by the pace of then.
void Wishes::consider_step() {
  if (step_.lines.empty() || !recorder::step_came()) return;
  const uint64_t begun = recorder::steps_begun(), step = step_.step;
  if (step_.begins && begun < step) {
    const uint64_t left = step - begun;
    const recorder::Steps steps = recorder::steps_since(0, recorder::monotonic_ns());
    if (left > 1 && (!steps.median_ns || left > kLeadNs / steps.median_ns)) {
      recorder::watch_step(next_look(step, begun));
      return;
    }
  }
  add(step_.lines, true);
  step_.number = last_;
  step_.lines.clear();
}

void Wishes::drop_step() {
  std::lock_guard lock(mutex_);
  const uint64_t begun = recorder::steps_begun();
  if (!step_.lines.empty() && begun)
    say({0, "", "the program ended in step " + std::to_string(begun - 1) + ", before step " + std::to_string(step_.step)});
  end_step();
}

void Wishes::end_step() {
  step_ = {};
  step_over_ = true;
  recorder::forget_watched_step();
}

void Wishes::armed() {
  std::lock_guard lock(mutex_);
  if (step_.number) step_.armed = true;
  if (step_.until != kNever) end_step();
}

bool Wishes::step_is_over() {
  std::lock_guard lock(mutex_);
  return std::exchange(step_over_, false);
}

bool Wishes::tell(Link& link, Packet& packet, bool welcomed, bool can) {
  std::lock_guard lock(mutex_);
  consider_step();
  const Milliseconds now = now_ms();
  if (now >= step_.until) end_step();
  for (std::size_t i = 0; i < waiting_.size();) {
    Wish& wish = waiting_[i];
    if (welcomed && !can) {
      settle(wish.number, "", "the profd of this host is of an earlier build, which takes no requests of programs");
      continue;
    }
    if (now >= wish.until) {
      settle(wish.number, "", wish.told ? "profd has not answered" : "no profd answers on this host");
      continue;
    }
    if (welcomed && !wish.told) {
      packet.begin(Type::Request, wish.number);
      packet.add_hex("incarnation", recorder::incarnation());
      packet.add_lines(wish.lines);
      if (!link.send(packet)) return false;
      wish.told = true;
    }
    ++i;
  }
  return true;
}

void Wishes::answered(const Frame& frame) {
  std::lock_guard lock(mutex_);
  settle(frame.epoch, frame.fields.text("capture"), frame.fields.text("why"));
}

void Wishes::settle(uint64_t number, std::string_view capture, std::string_view why) {
  const auto wish = std::find_if(waiting_.begin(), waiting_.end(), [&](const Wish& each) { return each.number == number; });
  if (wish == waiting_.end()) return;
  const bool aloud = wish->aloud;
  waiting_.erase(wish);
  if (granted_.size() >= kGrantedMost) granted_.pop_front();
  granted_.push_back({number, std::string(capture), capture.empty() && why.empty() ? "profd does not say why" : std::string(why)});
  if (aloud) say(granted_.back());
  if (number != step_.number) return;
  if (capture.empty() || step_.armed) return end_step();
  step_.until = now_ms() + kAnswer;
}

void Wishes::say(const Granted& granted) {
  char line[600];
  const bool refused = granted.capture.empty();
  const int length = std::snprintf(line, sizeof line, "profclient: PROFD_CAPTURE: %s %.400s\n", refused ? "no capture:" : "capture",
                                   (refused ? granted.why : granted.capture).c_str());
  pollfd out{STDERR_FILENO, POLLOUT, 0};  // a full pipe would make us wait
  if (length > 0 && poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) &&
      write(STDERR_FILENO, line, std::min<std::size_t>(length, sizeof line - 1)) < 0)
    return;  // nobody reads it
}

void Wishes::forget_told() {
  std::lock_guard lock(mutex_);
  for (Wish& wish : waiting_) wish.told = false;
}

Milliseconds Wishes::due() {
  std::lock_guard lock(mutex_);
  Milliseconds first = step_.until;
  for (const Wish& wish : waiting_) first = std::min(first, wish.until);
  return first;
}

}  // namespace profd::agent
