// What recording has cost the job so far, in seconds of its threads.
#pragma once

#include <cstdint>

namespace profd::agent {

// An upper estimate: timing each event would cost half as much again as recording it. Events are counted, and every
// one is taken to be of the dearest source that is on, at the cost that bench/ measured, scaled by how long this
// machine takes to read its clock.
class Cost {
 public:
  void begin(bool inputs);
  void count(uint64_t events, uint32_t sources);  // since begin, and what has recorded them
  uint64_t nanoseconds() const { return static_cast<uint64_t>(nanoseconds_); }

 private:
  bool inputs_ = false;
  double scale_ = 1;
  double nanoseconds_ = 0;
  uint64_t events_ = 0;
};

}  // namespace profd::agent
