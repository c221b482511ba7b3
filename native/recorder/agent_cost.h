// What recording has cost the job so far, in seconds of its threads, by source.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "mix.h"

namespace profd::agent {

// The options' words for the sources, in the order of their bits.
inline constexpr std::array<std::string_view, recorder::kSources> kSourceNames = {"ranges", "stacks", "ops", "cuda", "memory"};

// An upper estimate: timing each event would cost half as much again as recording it. Events are counted, and told apart
// by a sample; each is taken to cost what bench/ measured for its source, scaled by how long this machine takes to read
// its clock.
class Cost {
 public:
  void begin(bool inputs);
  // `events` since begin; `mix`: of those since the last call. Where that says nothing, all are of the dearest of
  // `sources`.
  void count(uint64_t events, const recorder::Mix& mix, uint32_t sources);
  uint64_t nanoseconds() const;
  uint64_t nanoseconds_of(int source) const { return static_cast<uint64_t>(nanoseconds_[source]); }

 private:
  double per_event(int source) const;

  bool inputs_ = false;
  double scale_ = 1;
  std::array<double, recorder::kSources> nanoseconds_{};
  uint64_t events_ = 0;
};

}  // namespace profd::agent
