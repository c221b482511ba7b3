#include "clock_fit.h"

#include <algorithm>
#include <cmath>

#include <time.h>

namespace profd::cupti {
namespace {

constexpr int kReadings = 5;
constexpr int64_t kBaselineNs = 20'000'000;  // between the two moments that give a foreign clock its first slope
constexpr int64_t kEarlyNs = 60'000'000'000, kAheadNs = 1'000'000'000;
constexpr double kSlopeMin = 1e-3, kSlopeMax = 1e3;  // ns a tick: 1 MHz to 1 THz
constexpr double kFarNs = 1e15;                      // eleven days: no distance within a recording

// Of any two numbers.
double distance(int64_t from, int64_t to) {
  return static_cast<double>(static_cast<int64_t>(static_cast<uint64_t>(from) - static_cast<uint64_t>(to)));
}

int64_t now_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

bool read_clocks(const Functions& cupti, Moment* best) {
  best->width = INT64_MAX;
  for (int i = 0; i < kReadings; i++) {
    uint64_t there = 0;
    const int64_t before = now_ns(CLOCK_MONOTONIC);
    const int64_t real = now_ns(CLOCK_REALTIME);
    if (cupti.get_timestamp(&there) != kSuccess) return false;
    const int64_t real_after = now_ns(CLOCK_REALTIME);
    const int64_t width = now_ns(CLOCK_MONOTONIC) - before;
    if (width < best->width)
      *best = {static_cast<int64_t>(there), before + width / 2, real + (real_after - real) / 2, width};
  }
  return true;
}

bool Line::unix_ns(uint64_t start, uint64_t end, uint64_t* from, uint64_t* to) const {
  const Moment& near = before(static_cast<int64_t>(start));
  const double since = distance(static_cast<int64_t>(start), near.cupti) * slope_;
  const double lasting = static_cast<double>(end - start) * slope_;
  if (std::fabs(since) > kFarNs || lasting > kFarNs) return false;
  const auto ns = [&](double scaled, uint64_t ticks) {
    return realtime_ ? static_cast<int64_t>(ticks) : static_cast<int64_t>(scaled);
  };
  const int64_t at = offset_ + near.monotonic + ns(since, start - static_cast<uint64_t>(near.cupti));
  const int64_t until = at + ns(lasting, end - start);
  *from = static_cast<uint64_t>(at);
  *to = static_cast<uint64_t>(until);
  return at >= earliest_ && until <= latest_;
}

const Moment& Line::before(int64_t cupti) const {
  const size_t known = std::min(count_, kMoments);
  for (size_t back = 1; back <= known; back++) {
    const Moment& moment = moments_[(count_ - back) % kMoments];
    if (moment.cupti <= cupti) return moment;
  }
  return moments_[(count_ - known) % kMoments];
}

bool ClockFit::begin(const Functions& cupti) {
  Moment moment;
  if (!read_clocks(cupti, &moment)) return false;
  begin(moment);
  if (is_realtime()) return true;
  const timespec pause{0, kBaselineNs};
  nanosleep(&pause, nullptr);
  Moment second;
  if (!read_clocks(cupti, &second) || second.cupti <= moment.cupti) return false;
  std::lock_guard lock(mutex_);
  line_.slope_ =
      static_cast<double>(second.monotonic - moment.monotonic) / static_cast<double>(second.cupti - moment.cupti);
  // What both widths do to the slope grows with the distance; the next moments correct it, and say by how much.
  error_ = moment.width + second.width;
  line_.moments_[line_.count_++] = second;
  return line_.slope_ > kSlopeMin && line_.slope_ < kSlopeMax && error_ < kErrorMax;
}

void ClockFit::begin(const Moment& moment) {
  std::lock_guard lock(mutex_);
  line_ = Line();
  line_.offset_ = moment.realtime - moment.monotonic;
  line_.earliest_ = moment.realtime - kEarlyNs;
  line_.realtime_ = std::fabs(distance(moment.cupti, moment.realtime)) <= static_cast<double>(kTolerance + moment.width);
  first_ = line_.moments_[line_.count_++] = moment;
  if (line_.realtime_) line_.moments_[0].cupti = moment.realtime;  // the same clock: times stay what they are
  error_ = moment.width;
  steps_ = 0;
}

void ClockFit::renew(const Functions& cupti) {
  Moment moment;
  if (read_clocks(cupti, &moment)) add(moment);
}

void ClockFit::add(const Moment& moment) {
  std::lock_guard lock(mutex_);
  const Moment& last = line_.moments_[(line_.count_ - 1) % Line::kMoments];
  const double passed = static_cast<double>(moment.monotonic - last.monotonic);
  const double off = std::min(std::fabs(passed - distance(moment.cupti, last.cupti) * line_.slope_), kFarNs);
  // What was recorded since the last moment was placed by the line that this one corrects.
  error_ = std::max(error_, static_cast<int64_t>(off) + moment.width);
  if (off > static_cast<double>(kTolerance)) {
    steps_++;
  } else if (line_.realtime_ && off <= static_cast<double>(kDrift)) {
    return;
  } else if (!line_.realtime_) {
    line_.slope_ = static_cast<double>(moment.monotonic - first_.monotonic) / distance(moment.cupti, first_.cupti);
  }
  line_.moments_[line_.count_++ % Line::kMoments] = moment;
}

Line ClockFit::line() const {
  std::lock_guard lock(mutex_);
  Line now = line_;
  now.latest_ = now.offset_ + now_ns(CLOCK_MONOTONIC) + kAheadNs;
  return now;
}

bool ClockFit::is_realtime() const {
  std::lock_guard lock(mutex_);
  return line_.realtime_;
}

int64_t ClockFit::error_ns() const {
  std::lock_guard lock(mutex_);
  return error_;
}

int64_t ClockFit::offset_ns() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(std::clamp(distance(first_.cupti, first_.realtime), -9e18, 9e18));
}

uint32_t ClockFit::steps() const {
  std::lock_guard lock(mutex_);
  return steps_;
}

}  // namespace profd::cupti
