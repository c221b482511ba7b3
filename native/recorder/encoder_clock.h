// Ticks of a chunk to CLOCK_MONOTONIC ns.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "arena.h"

namespace profd::encoder {

// ns per tick as a fixed-point number: exact enough that an anchor's ticks give that anchor's ns.
class Rate {
 public:
  Rate() = default;
  // Of two moments, the second later on both clocks; see `plausible`.
  Rate(const arena::Anchor& from, const arena::Anchor& to);

  std::uint64_t ns(std::uint64_t ticks) const {
    const auto product = static_cast<unsigned __int128>(ticks) * scale_;
    return static_cast<std::uint64_t>((product + (std::uint64_t{1} << (kShift - 1))) >> kShift);
  }

  // Both clocks move on, no more than 16 times as fast as each other, for less than an hour of ticks at 16 GHz.
  static bool plausible(const arena::Anchor& from, const arena::Anchor& to);

 private:
  static constexpr unsigned kShift = 58;
  std::uint64_t scale_ = std::uint64_t{1} << kShift;
};

// One chunk's piecewise line: between its own anchors, and beyond them at the rate of a longer stretch.
class ChunkClock {
 public:
  // `now` is the reader's own two moments, some time apart: all there is where a target died within its first second.
  ChunkClock(arena::Clock clock, const arena::ChunkHeader& chunk, const arena::Anchor& armed,
             const arena::Anchor& latest, const arena::Anchor (&own)[2]);

  // ns since base(), modulo 2^64.
  std::uint64_t relative(std::uint64_t ticks) const {
    if (identity_) return ticks - opened_.mono_ns;
    const std::uint64_t since = ticks - opened_.ticks;
    if (since <= span_) return inside_.ns(since);
    if (static_cast<std::int64_t>(since) < 0) return 0 - outside_.ns(0 - since);
    return span_ns_ + outside_.ns(since - span_);
  }

  std::uint64_t base() const { return opened_.mono_ns; }
  std::int64_t real_at_base() const { return opened_.real_ns; }
  std::uint32_t error_ns() const { return error_ns_; }

 private:
  struct Stretch;

  static Stretch best(std::initializer_list<Stretch> stretches);
  void measure_error(bool sealed, const Stretch& long_run);

  arena::Anchor opened_;
  bool identity_;
  std::uint64_t span_ = 0, span_ns_ = 0;  // of the stretch between the chunk's own anchors; 0: it has but one
  Rate inside_, outside_;
  std::uint32_t error_ns_ = 0;
};

}  // namespace profd::encoder
