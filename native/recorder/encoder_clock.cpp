#include "encoder_clock.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

namespace profd::encoder {
namespace {

// An anchor is two clocks read one after the other: the tightest of a few brackets is within 82-116 cycles.
constexpr std::uint64_t kAnchorErrorNs = 100;
constexpr std::uint64_t kTicksMax = std::uint64_t{1} << 46;
constexpr std::uint64_t kLongEnoughNs = 10'000'000;  // below it the anchors' own errors make the rate

std::uint32_t saturated(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

// Two moments that a rate may be taken from.
struct ChunkClock::Stretch {
  arena::Anchor from, to;

  // ns; 0: nothing can be made of it.
  std::uint64_t length() const { return Rate::plausible(from, to) ? to.mono_ns - from.mono_ns : 0; }
};

// The first that is long enough, or else the longest.
ChunkClock::Stretch ChunkClock::best(std::initializer_list<Stretch> stretches) {
  Stretch found{};
  for (const Stretch& stretch : stretches) {
    if (found.length() >= kLongEnoughNs) break;
    if (stretch.length() > found.length()) found = stretch;
  }
  return found;
}

Rate::Rate(const arena::Anchor& from, const arena::Anchor& to) {
  const auto ns = static_cast<unsigned __int128>(to.mono_ns - from.mono_ns) << kShift;
  const std::uint64_t ticks = to.ticks - from.ticks;
  scale_ = static_cast<std::uint64_t>((ns + ticks / 2) / ticks);
}

bool Rate::plausible(const arena::Anchor& from, const arena::Anchor& to) {
  const std::uint64_t ticks = to.ticks - from.ticks, ns = to.mono_ns - from.mono_ns;
  return ticks > 0 && ns > 0 && ticks < kTicksMax && ns < kTicksMax && ticks / 16 <= ns && ns / 16 <= ticks;
}

ChunkClock::ChunkClock(arena::Clock clock, const arena::ChunkHeader& chunk, const arena::Anchor& armed,
                       const arena::Anchor& latest, const arena::Anchor (&own)[2])
    : opened_(chunk.opened), identity_(clock == arena::Clock::MonotonicNs) {
  if (identity_) return;
  const Stretch long_run = best({{armed, latest}, {own[0], own[1]}, {chunk.opened, chunk.sealed}, {armed, chunk.opened}});
  if (long_run.length() > 0) outside_ = Rate(long_run.from, long_run.to);
  const bool sealed = Rate::plausible(chunk.opened, chunk.sealed);
  if (sealed) {
    inside_ = Rate(chunk.opened, chunk.sealed);
    span_ = chunk.sealed.ticks - chunk.opened.ticks;
    span_ns_ = chunk.sealed.mono_ns - chunk.opened.mono_ns;
  }
  measure_error(sealed, long_run);
}

void ChunkClock::measure_error(bool sealed, const Stretch& long_run) {
  const std::uint64_t length = long_run.length();
  if (length == 0) {
    error_ns_ = std::numeric_limits<std::uint32_t>::max();
    return;
  }
  if (sealed) {
    // A thread that was preempted between the two reads of an anchor shows against the longer line.
    const auto off = static_cast<std::int64_t>(span_ns_ - outside_.ns(span_));
    error_ns_ = saturated(kAnchorErrorNs + static_cast<std::uint64_t>(off < 0 ? -off : off));
    return;
  }
  // A line with nothing to hold on to at its end drifts by what the anchors of its rate are off.
  const std::uint64_t reach = std::max(long_run.to.mono_ns, opened_.mono_ns) - std::min(long_run.to.mono_ns, opened_.mono_ns);
  const double drift = 2.0 * kAnchorErrorNs * static_cast<double>(reach) / static_cast<double>(length);
  error_ns_ = saturated(kAnchorErrorNs + static_cast<std::uint64_t>(std::min(drift, 4e9)));
}

}  // namespace profd::encoder
