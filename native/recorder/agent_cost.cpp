#include "agent_cost.h"

#include <algorithm>

#include "recorder.h"

namespace profd::agent {
namespace {

struct SourceCost {
  double ns, ns_with_inputs;  // per event, on a machine that reads its clock in kClockNs
};
// Measured, begin and end together, what the source adds to the code around it: docs/facts, bench/recording.py.
constexpr SourceCost kCosts[recorder::kSources] = {{65, 65}, {110, 110}, {90, 240}, {120, 120}, {60, 60}};
constexpr double kClockNs = 12;
constexpr int kReadings = 256;

double clock_scale() {
  uint64_t sum = 0;
  const uint64_t before = recorder::monotonic_ns();
  for (int i = 0; i < kReadings; ++i) sum += recorder::ticks(recorder::api);
  const uint64_t after = recorder::monotonic_ns() + (sum == 0);  // the readings are used
  // Never below 1: a machine that is faster is told to be as slow. Never absurd: we may have been interrupted.
  return std::clamp(static_cast<double>(after - before) / kReadings / kClockNs, 1.0, 10.0);
}

}  // namespace

void Cost::begin(bool inputs) {
  *this = Cost();
  inputs_ = inputs;
  scale_ = clock_scale();
}

double Cost::per_event(int source) const {
  return (inputs_ ? kCosts[source].ns_with_inputs : kCosts[source].ns) * scale_;
}

void Cost::count(uint64_t events, const recorder::Mix& mix, uint32_t sources) {
  if (events <= events_) return;
  const auto more = static_cast<double>(events - events_);
  events_ = events;
  uint64_t sampled = 0;
  int dearest = 0;
  for (int i = 0; i < recorder::kSources; i++) {
    sampled += mix.events[i];
    if ((sources & 1u << i) && per_event(i) > per_event(dearest)) dearest = i;
  }
  if (sampled == 0) {
    nanoseconds_[dearest] += more * per_event(dearest);
    return;
  }
  for (int i = 0; i < recorder::kSources; i++) {
    nanoseconds_[i] += more * static_cast<double>(mix.events[i]) / static_cast<double>(sampled) * per_event(i);
  }
}

uint64_t Cost::nanoseconds() const {
  double sum = 0;
  for (const double each : nanoseconds_) sum += each;
  return static_cast<uint64_t>(sum);
}

}  // namespace profd::agent
