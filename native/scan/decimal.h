// Decimal microseconds to nanoseconds, exactly: no binary fractions on the way.
#pragma once

#include <cstdint>
#include <string_view>

namespace profd::scan {

// ns + fs * 1e-6 ns, 0 <= fs < 1'000'000. Digits below a femtosecond are dropped.
struct Time {
  std::int64_t ns = 0;
  std::int32_t fs = 0;
};

// A JSON number of microseconds. False when it is none or beyond int64 nanoseconds.
bool parse_us(std::string_view number, Time& out);

// The same of value * 10^-fraction. False where parse_us has to look at the text.
inline bool us_to_time(std::int64_t value, int fraction, Time& out) {
  constexpr std::int64_t kScale[] = {1000, 100, 10, 1};
  out.fs = 0;
  return fraction <= 3 && !__builtin_mul_overflow(value, kScale[fraction], &out.ns);
}

// False on overflow.
bool add(Time a, Time b, Time& out);

// To the nearest nanosecond, halves to even: monotone, so that nested intervals stay nested.
inline std::int64_t round_ns(Time t) { return t.ns + (t.fs > 500'000 || (t.fs == 500'000 && (t.ns & 1))); }

}  // namespace profd::scan
