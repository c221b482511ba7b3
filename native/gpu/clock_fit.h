// CUPTI's clock beside ours. Its times become Unix ns as the rest of the recording has them: CLOCK_MONOTONIC, plus what
// CLOCK_REALTIME was ahead of it at the arm, so that a wall clock that is set meanwhile moves nothing.
//
// CUPTI counts CLOCK_REALTIME by itself; libkineto makes it count ticks of the TSC in processes that it has profiled.
// Either way it is measured between two readings of our clocks at every arm and flush, and a line goes through what
// was measured. No timestamp callback is registered, ever (docs/facts/cupti.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "cupti_abi.h"

namespace profd::cupti {

// One moment on three clocks; `width` ns lay between the readings around CUPTI's.
struct Moment {
  int64_t cupti = 0, monotonic = 0, realtime = 0, width = 0;
};

// The narrowest of some readings. False: CUPTI does not tell the time.
bool read_clocks(const Functions& cupti, Moment* moment);

// How times of CUPTI's become ours, as it stood at one moment. A copy: buffers are walked beside whoever measures.
class Line {
 public:
  static constexpr size_t kMoments = 64;  // of the last minute: buffers come late

  // From two times of CUPTI's in order to Unix ns; the second goes by the first, so that lengths stay what they were.
  // False: they are no times of this recording (earlier than a minute before the arm, or ahead of now).
  bool unix_ns(uint64_t start, uint64_t end, uint64_t* from, uint64_t* to) const;

 private:
  friend class ClockFit;

  // The last moment that is not behind the time; else the oldest that is known.
  const Moment& before(int64_t cupti) const;

  std::array<Moment, kMoments> moments_{};
  size_t count_ = 0;        // ever
  bool realtime_ = true;    // CUPTI counts ns
  double slope_ = 1;        // ns of ours a tick of CUPTI's, where it does not
  int64_t offset_ = 0;      // of Unix time from CLOCK_MONOTONIC
  int64_t earliest_ = 0, latest_ = 0;  // Unix ns
};

class ClockFit {
 public:
  static constexpr int64_t kTolerance = 1'000'000;  // ns from CLOCK_REALTIME within which it is that clock
  static constexpr int64_t kDrift = 20'000;         // ns that are left as they are: reading clocks takes some, too
  static constexpr int64_t kErrorMax = 10'000'000;  // ns; a clock that no line fits better is refused

  // At an arm. False: no line goes through this clock. Takes some ms where it is not CLOCK_REALTIME.
  bool begin(const Functions& cupti);
  // While it records: measures anew. What it was off by since the last time joins the error bound.
  void renew(const Functions& cupti);
  void begin(const Moment& moment);
  void add(const Moment& moment);

  // As it stands now.
  Line line() const;

  bool is_realtime() const;
  int64_t error_ns() const;   // bound for what was recorded so far
  int64_t offset_ns() const;  // of CUPTI's clock from CLOCK_REALTIME at the arm
  uint32_t steps() const;     // times that it was off by more than the tolerance: a clock was set

 private:
  mutable std::mutex mutex_;
  Line line_;
  Moment first_;
  int64_t error_ = 0;
  uint32_t steps_ = 0;
};

}  // namespace profd::cupti
