#include "decimal.h"

#include <algorithm>
#include <limits>

#include "text.h"

namespace profd::scan {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max() - 1;  // leaves room to round up

struct Digits {
  std::string_view whole, fraction;
  std::int64_t exponent = 0;
  // Digit `i` of whole and fraction written together; zeros beyond.
  int at(std::int64_t i) const {
    const auto n = static_cast<std::int64_t>(whole.size());
    if (i < n) return whole[static_cast<std::size_t>(i)] - '0';
    i -= n;
    return i < static_cast<std::int64_t>(fraction.size()) ? fraction[static_cast<std::size_t>(i)] - '0' : 0;
  }
  std::int64_t size() const { return static_cast<std::int64_t>(whole.size() + fraction.size()); }
};

// Any digits, any exponent: at most 19 digits of the result are ever looked at.
bool parse_any(Digits digits, bool negative, Time& out) {
  std::int64_t first = 0;
  while (first < digits.size() && digits.at(first) == 0) ++first;
  if (first == digits.size()) {
    out = {};
    return true;
  }
  const std::int64_t point = static_cast<std::int64_t>(digits.whole.size()) + digits.exponent + 3;  // in ns
  if (point - first > 19) return false;
  unsigned __int128 ns = 0;
  for (std::int64_t i = first; i < point; ++i) ns = ns * 10 + static_cast<unsigned>(digits.at(i));
  if (ns > static_cast<unsigned __int128>(kMax)) return false;
  std::int32_t fs = 0;
  for (std::int64_t i = point; i < point + 6; ++i) fs = fs * 10 + (i < first ? 0 : digits.at(i));
  out = {static_cast<std::int64_t>(ns), fs};
  if (negative) out = fs ? Time{-out.ns - 1, 1'000'000 - fs} : Time{-out.ns, 0};
  return true;
}

}  // namespace

bool parse_us(std::string_view number, Time& out) {
  static constexpr std::int64_t kScale[] = {1000, 100, 10, 1};
  const char* p = number.data();
  const char* const end = p + number.size();
  const bool negative = p < end && *p == '-';
  if (negative) ++p;
  const char* const whole = p;
  std::uint64_t value = 0;
  while (p < end && is_digit(*p)) value = value * 10 + static_cast<unsigned>(*p++ - '0');
  Digits digits{{whole, static_cast<std::size_t>(p - whole)}, {}, 0};
  if (digits.whole.empty()) return false;
  if (p < end && *p == '.') {
    const char* const fraction = ++p;
    while (p < end && is_digit(*p)) value = value * 10 + static_cast<unsigned>(*p++ - '0');
    digits.fraction = {fraction, static_cast<std::size_t>(p - fraction)};
    if (digits.fraction.empty()) return false;
  }
  if (p == end && digits.fraction.size() <= 3 && digits.whole.size() <= 15) {
    const auto ns = static_cast<std::int64_t>(value) * kScale[digits.fraction.size()];
    out = {negative ? -ns : ns, 0};
    return true;
  }
  if (p < end && (*p == 'e' || *p == 'E')) {
    const bool minus = ++p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) ++p;
    if (p == end) return false;
    // Far beyond any digit count that fits a record; saturating keeps hostile exponents cheap.
    for (; p < end && is_digit(*p); ++p) digits.exponent = std::min<std::int64_t>(digits.exponent * 10 + (*p - '0'), 1 << 30);
    if (minus) digits.exponent = -digits.exponent;
  }
  return p == end && parse_any(digits, negative, out);
}

bool add(Time a, Time b, Time& out) {
  std::int32_t fs = a.fs + b.fs;
  const std::int32_t carry = fs >= 1'000'000;
  fs -= carry * 1'000'000;
  std::int64_t ns;
  if (__builtin_add_overflow(a.ns, b.ns, &ns) || ns > kMax - carry) return false;
  out = {ns + carry, fs};
  return true;
}

}  // namespace profd::scan
