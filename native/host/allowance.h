// What may pass in a second: token buckets of one user, or of the host.
#pragma once

#include <algorithm>
#include <chrono>

namespace profd::host {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

inline Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

struct Bucket {
  double rate;   // a second
  double burst;  // after a pause
  double level;
};

struct Cost {
  double streams = 0;
  double work = 0;
};

class Allowance {
 public:
  struct Rates {
    double streams, streams_burst, work, work_burst;
  };

  Allowance(const Rates& rates, Time now)
      : streams_{rates.streams, rates.streams_burst, rates.streams_burst},
        work_{rates.work, rates.work_burst, rates.work_burst},
        filled_(now) {}

  bool covers(const Cost& cost, Time now) {
    fill(now);
    return streams_.level >= cost.streams && work_.level >= cost.work;
  }
  void take(const Cost& cost) {
    streams_.level -= cost.streams;
    work_.level -= cost.work;
  }
  // Seconds until it covers that.
  double wait(const Cost& cost) const {
    return std::max({0.0, (cost.streams - streams_.level) / streams_.rate, (cost.work - work_.level) / work_.rate});
  }
  bool is_full(Time now) {
    fill(now);
    return streams_.level >= streams_.burst && work_.level >= work_.burst;
  }

 private:
  void fill(Time now) {
    const double seconds = std::chrono::duration<double>(now - filled_).count();
    if (seconds <= 0) return;
    filled_ = now;
    for (Bucket* bucket : {&streams_, &work_}) {
      bucket->level = std::min(bucket->burst, bucket->level + bucket->rate * seconds);
    }
  }

  Bucket streams_, work_;
  Time filled_;
};

}  // namespace profd::host
