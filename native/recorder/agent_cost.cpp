#include "agent_cost.h"

#include <algorithm>

#include "recorder.h"

namespace profd::agent {
namespace {

struct SourceCost {
  uint32_t source;
  double ns, ns_with_inputs;  // per event, on a machine that reads its clock in kClockNs
};
// Measured, begin and end together, what the source adds to the code around it: docs/facts, bench/recording.py.
constexpr SourceCost kCosts[] = {
    {recorder::kRanges, 65, 65}, {recorder::kPython, 110, 110}, {recorder::kOps, 90, 240},
    {recorder::kGpu, 120, 120},  {recorder::kMemory, 60, 60},
};
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

void Cost::count(uint64_t events, uint32_t sources) {
  double dearest = 0;
  for (const SourceCost& cost : kCosts)
    if (sources & cost.source) dearest = std::max(dearest, inputs_ ? cost.ns_with_inputs : cost.ns);
  if (events > events_) nanoseconds_ += static_cast<double>(events - events_) * dearest * scale_;
  events_ = std::max(events_, events);
}

}  // namespace profd::agent
