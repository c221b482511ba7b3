#include "text.h"

#include <array>

namespace profd::scan {

Scan scan_not_a_number(const char*& p, const char* end) {
  static constexpr std::array<std::string_view, 3> kWords = {"infinity", "inf", "nan"};
  const char* q = p + (*p == '-');
  for (const std::string_view word : kWords) {
    std::size_t n = 0;
    while (n < word.size() && (q[n] | 0x20) == word[n]) ++n;
    if (q + n >= end) return Scan::kMore;
    if (n == word.size()) {
      p = q + n;
      return Scan::kOk;
    }
  }
  return Scan::kBad;
}

Scan skip_value(const char*& p, const char* end, int depth_max, bool& clean) {
  std::uint64_t objects = 0;  // bit per open bracket, lowest = innermost: 1 is an object
  int depth = 0;
  Text text;
  NumberForm form;
  Scan s;
  if (depth_max > kDepthCap) depth_max = kDepthCap;
value:
  p = skip_space(p);
  switch (*p) {
    case '"':
      if ((s = scan_string(p, end, text)) != Scan::kOk) return s;
      clean &= text.plain;
      break;
    case '{':
      if (++depth > depth_max) return Scan::kDeep;
      objects = objects << 1 | 1;
      p = skip_space(p + 1);
      if (*p == '}') goto close;
      goto key;
    case '[':
      if (++depth > depth_max) return Scan::kDeep;
      objects <<= 1;
      p = skip_space(p + 1);
      if (*p == ']') goto close;
      goto value;
    case 't':
    case 'f':
    literal:
      if ((s = scan_literal(p, end)) != Scan::kOk) return s;
      break;
    case 'n':
      if (p[1] == 'u') goto literal;
      [[fallthrough]];
    default: {
      if (!is_digit(*p) && *p != '-' && (*p | 0x20) != 'n' && (*p | 0x20) != 'i') return p >= end ? Scan::kMore : Scan::kBad;
      const char* const number = p;
      if ((s = scan_number(p, end, form)) != Scan::kOk) return s;
      clean &= form != NumberForm::kNotANumber && p - number <= kNumberCap;
    }
  }
after:
  if (depth == 0) return Scan::kOk;
  p = skip_space(p);
  if (*p == ',') {
    p = skip_space(p + 1);
    if (objects & 1) goto key;
    goto value;
  }
  if (*p != (objects & 1 ? '}' : ']')) return p >= end ? Scan::kMore : Scan::kBad;
close:
  ++p;
  --depth;
  objects >>= 1;
  goto after;
key:
  if (*p != '"') return p >= end ? Scan::kMore : Scan::kBad;
  if ((s = scan_string(p, end, text)) != Scan::kOk) return s;
  clean &= text.plain;
  p = skip_space(p);
  if (*p != ':') return p >= end ? Scan::kMore : Scan::kBad;
  ++p;
  goto value;
}

bool Skipper::run(const char*& p, const char* end) {
  while (p < end) {
    if (in_string_) {
      p = find_special(p);
      if (p >= end) {
        p = end;
        return false;
      }
      if (*p == '\\') {
        if (p + 1 >= end) return false;  // what it escapes is in the next piece
        p += 2;
      } else if (*p++ == '"') {
        in_string_ = false;
        if (depth_ == 0) return true;
      }
      continue;
    }
    const char c = *p++;
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && --depth_ <= 0) {
      return true;
    }
  }
  return false;
}

}  // namespace profd::scan
