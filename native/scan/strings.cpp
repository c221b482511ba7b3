#include "strings.h"

#include <cstdint>

#include "text.h"

namespace profd::scan {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

void append_code_point(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

// Four hex digits at `at`, or -1.
std::int32_t hex4(std::string_view raw, std::size_t at) {
  if (at + 4 > raw.size()) return -1;
  std::int32_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    const char c = raw[i];
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c)) {
      value = value << 4 | (c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value << 4 | (lower - 'a' + 10);
    } else {
      return -1;
    }
  }
  return value;
}

// The escape at raw[i] == '\\'. Returns how many bytes it took, 0 when it is none.
std::size_t append_escape(std::string& out, std::string_view raw, std::size_t i) {
  static constexpr std::string_view kFrom = "\"\\/bfnrt";
  static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
  const char c = i + 1 < raw.size() ? raw[i + 1] : '\0';
  if (const std::size_t at = c ? kFrom.find(c) : std::string_view::npos; at != std::string_view::npos) {
    out += kTo[at];
    return 2;
  }
  const std::int32_t unit = c == 'u' ? hex4(raw, i + 2) : -1;
  if (unit < 0) return 0;
  if (unit < 0xD800 || unit > 0xDFFF) {
    append_code_point(out, static_cast<std::uint32_t>(unit));
    return 6;
  }
  const bool second = unit < 0xDC00 && i + 7 < raw.size() && raw[i + 6] == '\\' && raw[i + 7] == 'u';
  const std::int32_t low = second ? hex4(raw, i + 8) : -1;
  if (low < 0xDC00 || low > 0xDFFF) {
    out += kReplacement;
    return 6;
  }
  append_code_point(out, 0x10000u + (static_cast<std::uint32_t>(unit - 0xD800) << 10) +
                             static_cast<std::uint32_t>(low - 0xDC00));
  return 12;
}

}  // namespace

void append_utf8(std::string& out, std::string_view bytes) {
  const auto at = [&](std::size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : static_cast<unsigned char>(0);
  };
  for (std::size_t i = 0; i < bytes.size();) {
    const unsigned char c = at(i);
    if (c < 0x80) {
      out += static_cast<char>(c);
      ++i;
      continue;
    }
    // Unicode 15, table 3-7: the second byte's range depends on the first.
    const std::size_t length = c >= 0xC2 && c <= 0xDF ? 2 : c >= 0xE0 && c <= 0xEF ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 1;
    const unsigned char low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    std::size_t good = 1;
    while (good < length && at(i + good) >= (good == 1 ? low : 0x80) && at(i + good) <= (good == 1 ? high : 0xBF)) ++good;
    if (length > 1 && good == length) {
      out += bytes.substr(i, length);
    } else {
      out += kReplacement;
    }
    i += good;
  }
}

std::string unescape(std::string_view raw) {
  std::string mixed;
  mixed.reserve(raw.size());
  for (std::size_t i = 0; i < raw.size();) {
    std::size_t taken = raw[i] == '\\' ? append_escape(mixed, raw, i) : 0;
    if (taken == 0) {
      mixed += raw[i];
      taken = 1;
    }
    i += taken;
  }
  std::string out;
  out.reserve(mixed.size());
  append_utf8(out, mixed);
  return out;
}

void append_quoted(std::string& out, std::string_view value) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[c >> 4 & 15];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string clean_json(std::string_view text) {
  std::string padded(text);
  padded.append(kPadding, '\0');
  const char* p = padded.data();
  const char* const end = p + text.size();
  std::string out;
  out.reserve(text.size());
  while (p < end) {
    const char lower = static_cast<char>(*p | 0x20);
    if (*p == '"') {
      Text string;
      if (scan_string(p, end, string) != Scan::kOk) break;
      append_quoted(out, string.plain ? std::string(string.raw) : unescape(string.raw));
    } else if (is_digit(*p) || *p == '-' || lower == 'i' || (lower == 'n' && p[1] != 'u')) {
      const char* const begin = p;
      NumberForm form;
      if (scan_number(p, end + 1, form) != Scan::kOk) break;  // the NUL behind the text ends it
      const std::string_view number(begin, static_cast<std::size_t>(p - begin));
      if (form == NumberForm::kNotANumber || p - begin > kNumberCap) {
        append_quoted(out, number);
      } else {
        out += number;
      }
    } else {
      out += *p++;
    }
  }
  return out;
}

}  // namespace profd::scan
