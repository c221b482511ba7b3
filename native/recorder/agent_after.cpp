#include "agent_after.h"

#include "recorder.h"
#include "steps.h"

namespace profd::agent {
namespace {

constexpr uint64_t kSteps = 3;  // whole ones; fewer are no measure
constexpr uint64_t kWanted = kSteps + 1;  // the first was recorded in part
constexpr Milliseconds kLookEvery = 20;   // at most as often
constexpr Milliseconds kLookSeldom = 1'000;
constexpr Milliseconds kLongestLook = 30'000;  // of long steps

}  // namespace

void StepsAfter::begin(uint64_t epoch, uint64_t step_ns, Milliseconds least) {
  const Milliseconds now = now_ms();
  const auto wanted = static_cast<Milliseconds>(std::min<uint64_t>(step_ns, uint64_t{kLongestLook} * 1'000'000) * kWanted / 1'000'000);
  epoch_ = epoch;
  step_ns_ = step_ns;
  first_ = recorder::steps_since(0, recorder::monotonic_ns()).count + 1;
  end_ = now + std::max(least, std::min(wanted, kLongestLook));
  look_ = step_ns ? now + kLookEvery : kNever;
}

void StepsAfter::end() {
  if (end_ == kNever) return;
  tell(true);
  forget();
}

bool StepsAfter::keep(Milliseconds now) {
  if (now >= end_) return end(), true;
  if (now >= look_) {
    const auto half = static_cast<Milliseconds>(step_ns_ / 2'000'000);
    look_ = tell(false) ? kNever : now + std::clamp(half, kLookEvery, kLookSeldom);
  }
  return false;
}

// Of the last steps, at most 64: at the end those right behind the recording, which what it left to do may have slowed,
// are of no weight any more.
bool StepsAfter::tell(bool last) {
  if (!step_ns_) return false;
  const recorder::Steps steps = recorder::steps_since(first_, recorder::monotonic_ns());
  const bool known = steps.known >= kSteps;
  if (!known && !last) return false;
  packet_.begin(Type::Status, epoch_);
  if (known) packet_.add("step_ns_after", steps.median_ns);
  if (last) packet_.add("after", std::string_view("over"));
  return link_.try_send(packet_) && known;
}

}  // namespace profd::agent
