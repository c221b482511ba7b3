// JSON text, token by token. Strict about structure, lenient about what real
// writers get wrong: control characters, bad escapes and bad UTF-8 in strings,
// NaN and Infinity as numbers.
//
// Every function reads from a buffer that ends with at least kPadding NUL bytes
// at `end`, so that it may look ahead without a bounds check; a NUL at or after
// `end` stops every token. Nothing here allocates or recurses.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace profd::scan {

inline constexpr std::size_t kPadding = 64;
inline constexpr std::ptrdiff_t kNumberCap = 4096;  // Python refuses integers beyond 4300 digits
inline constexpr int kDepthCap = 64;  // bits of the bracket stack in skip_value

enum class Scan : std::uint8_t {
  kOk,
  kMore,  // the buffer ends inside the token
  kBad,   // not JSON; the cursor stands on the offending byte
  kDeep,  // nested deeper than allowed
};

// The content of a JSON string, without its quotes.
struct Text {
  std::string_view raw;
  bool plain = true;  // ASCII without escapes or control characters: raw is the value
};

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

inline const char* skip_space(const char* p) {
  if (static_cast<unsigned char>(*p) > ' ') return p;
#if defined(__SSE2__)
  // Indented traces carry runs of ~6 blanks before each key.
  for (;;) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i blank = _mm_or_si128(
        _mm_or_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8(' ')), _mm_cmpeq_epi8(block, _mm_set1_epi8('\n'))),
        _mm_or_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8('\t')), _mm_cmpeq_epi8(block, _mm_set1_epi8('\r'))));
    const unsigned other = static_cast<unsigned>(_mm_movemask_epi8(blank)) ^ 0xFFFFu;
    if (other) return p + __builtin_ctz(other);
    p += 16;
  }
#else
  while (is_space(*p)) ++p;
  return p;
#endif
}

// The first byte at or after p that a string scan must look at: quote, backslash, control or non-ASCII.
inline const char* find_special(const char* p) {
#if defined(__SSE2__)
  for (;;) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i special = _mm_or_si128(
        _mm_or_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8('"')), _mm_cmpeq_epi8(block, _mm_set1_epi8('\\'))),
        _mm_cmplt_epi8(block, _mm_set1_epi8(0x20)));  // signed: also bytes >= 0x80
    const unsigned mask = static_cast<unsigned>(_mm_movemask_epi8(special));
    if (mask) return p + __builtin_ctz(mask);
    p += 16;
  }
#else
  while (*p != '"' && *p != '\\' && static_cast<signed char>(*p) >= 0x20) ++p;
  return p;
#endif
}

// `p` stands on the opening quote; afterwards behind the closing one.
inline Scan scan_string(const char*& p, const char* end, Text& out) {
  const char* const begin = ++p;
  bool plain = true;
  for (;;) {
    p = find_special(p);
    if (p >= end) return Scan::kMore;
    if (*p == '"') break;
    plain = false;
    p += *p == '\\' ? 2 : 1;
  }
  out = {std::string_view(begin, static_cast<std::size_t>(p - begin)), plain};
  ++p;
  return Scan::kOk;
}

enum class NumberForm : std::uint8_t { kInteger, kDecimal, kNotANumber };

// NaN, Infinity and what C++ streams print for them, with an optional minus.
Scan scan_not_a_number(const char*& p, const char* end);

inline Scan scan_digits(const char*& p, const char* end) {
  if (!is_digit(*p)) return p >= end ? Scan::kMore : Scan::kBad;
  while (is_digit(*p)) ++p;
  return Scan::kOk;
}

// `p` stands on '-', a digit, or the letter of NaN and Infinity.
inline Scan scan_number(const char*& p, const char* end, NumberForm& form) {
  const char* const begin = p;
  if (*p == '-') ++p;
  form = NumberForm::kInteger;
  if (!is_digit(*p)) {
    if (p >= end) return Scan::kMore;
    p = begin;
    form = NumberForm::kNotANumber;
    return scan_not_a_number(p, end);
  }
  if (*p == '0') {
    ++p;
    if (is_digit(*p)) return Scan::kBad;
  } else {
    while (is_digit(*p)) ++p;
  }
  if (*p == '.') {
    form = NumberForm::kDecimal;
    if (const Scan s = scan_digits(++p, end); s != Scan::kOk) return s;
  }
  if (*p == 'e' || *p == 'E') {
    form = NumberForm::kDecimal;
    ++p;
    if (*p == '+' || *p == '-') ++p;
    if (const Scan s = scan_digits(p, end); s != Scan::kOk) return s;
  }
  return p >= end ? Scan::kMore : Scan::kOk;  // more digits may follow
}

// Passes over digits and puts them behind those of `value`, eight at a time. Beyond 19 digits it wraps.
inline void read_digits(const char*& p, std::uint64_t& value) {
  static_assert(std::endian::native == std::endian::little);  // the first digit is the lowest byte
  static constexpr std::uint64_t kPowers[] = {1, 10, 100, 1000, 10'000, 100'000, 1'000'000, 10'000'000, 100'000'000};
  for (;;) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= 0x3030303030303030;  // digits are 0 to 9 now, and nothing else is
    const std::uint64_t other = ((word + 0x7676767676767676) | word) & 0x8080808080808080;
    const int count = other ? __builtin_ctzll(other) / 8 : 8;
    if (count == 0) return;
    word <<= 64 - 8 * count;  // zeros in front
    word = (word * (1 + (10ull << 8)) >> 8) & 0x00FF00FF00FF00FF;  // pairs of digits, of pairs, of fours
    word = (word * (1 + (100ull << 16)) >> 16) & 0x0000FFFF0000FFFF;
    word = word * (1 + (10'000ull << 32)) >> 32;
    value = value * kPowers[count] + word;
    p += count;
    if (count < 8) return;
  }
}

inline constexpr std::ptrdiff_t kShortDigits = 18;

// A number without an exponent: value * 10^-fraction. An integer has no fraction, a decimal at least one digit.
struct ShortNumber {
  std::int64_t value;
  int fraction;
};

// Reads a number of at most kShortDigits digits. False, with the cursor where it was, for any other and for what
// scan_number has to judge.
inline bool scan_short_number(const char*& p, ShortNumber& out) {
  const bool negative = *p == '-';
  const char* const whole = p + negative;
  const char* q = whole;
  std::uint64_t value = 0;
  read_digits(q, value);
  if (q == whole || (*whole == '0' && q - whole > 1)) return false;
  std::ptrdiff_t digits = q - whole;
  out.fraction = 0;
  if (*q == '.') {
    const char* const point = q++;
    read_digits(q, value);
    if (q - point == 1) return false;
    out.fraction = static_cast<int>(q - point - 1);
    digits = q - whole - 1;
  }
  const bool goes_on = *q == '\0' || (*q | 0x20) == 'e';  // a NUL may be the end of the buffer
  if (goes_on || digits > kShortDigits || (negative && value == 0)) return false;
  out.value = negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
  p = q;
  return true;
}

// true, false, null.
inline Scan scan_literal(const char*& p, const char* end) {
  const std::string_view word = *p == 't' ? "true" : *p == 'f' ? "false" : *p == 'n' ? "null" : "";
  if (word.empty()) return p >= end ? Scan::kMore : Scan::kBad;
  for (const char c : word) {
    if (*p != c) return p >= end ? Scan::kMore : Scan::kBad;
    ++p;
  }
  return Scan::kOk;
}

// Passes over one whole value. `clean` turns false when the text must be rewritten to be JSON.
Scan skip_value(const char*& p, const char* end, int depth_max, bool& clean);

// Passes over a value of any size and depth, in pieces, checking only that brackets balance.
// For what is too large to be parsed, and for a first look at a file.
class Skipper {
 public:
  void reset() { depth_ = 0, in_string_ = false; }
  // True when the value that began with a bracket or quote is closed. May leave one byte (a backslash) unread.
  bool run(const char*& p, const char* end);

 private:
  std::int64_t depth_ = 0;
  bool in_string_ = false;
};

}  // namespace profd::scan
