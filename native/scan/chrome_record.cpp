#include "chrome_record.h"

#include <charconv>
#include <cmath>

#include "strings.h"

namespace profd::scan {

std::string_view Record::keep(std::string text) { return kept_.emplace_back(std::move(text)); }

void Record::clear() {
  for (Value* value : {&name, &cat, &phase, &pid, &tid, &ts, &dur, &id, &bp}) value->reset();
  args.clear();
  others.clear();
  if (!kept_.empty()) kept_.clear();
  fault = RecordFault::kNone;
}

Scan Record::parse(const char*& p, const char* end, const Limits& limits) {
  clear();
  p = skip_space(p + 1);
  if (*p == '}') {
    ++p;
    return Scan::kOk;
  }
  for (;;) {
    if (const Scan s = parse_member(p, end, limits); s != Scan::kOk) return s;
    p = skip_space(p);
    if (*p == '}') {
      ++p;
      return Scan::kOk;
    }
    if (*p != ',') return p >= end ? Scan::kMore : Scan::kBad;
    p = skip_space(p + 1);
  }
}

Scan Record::parse_key(const char*& p, const char* end, const Limits& limits, std::string_view& key) {
  if (*p != '"') return p >= end ? Scan::kMore : Scan::kBad;
  Text text;
  if (const Scan s = scan_string(p, end, text); s != Scan::kOk) return s;
  if (text.raw.size() > limits.string_bytes) fault = RecordFault::kTooLarge;
  key = text.plain ? text.raw : keep(unescape(text.raw));
  p = skip_space(p);
  if (*p != ':') return p >= end ? Scan::kMore : Scan::kBad;
  p = skip_space(p + 1);
  return Scan::kOk;
}

Scan Record::parse_member(const char*& p, const char* end, const Limits& limits) {
  std::string_view key;
  if (const Scan s = parse_key(p, end, limits, key); s != Scan::kOk) return s;
  Value* field = nullptr;
  switch (key.size()) {
    case 2:
      field = key == "ph" ? &phase : key == "ts" ? &ts : key == "id" ? &id : key == "bp" ? &bp : nullptr;
      break;
    case 3:
      field = key == "pid" ? &pid : key == "tid" ? &tid : key == "dur" ? &dur : key == "cat" ? &cat : nullptr;
      break;
    case 4:
      if (key == "name") field = &name;
      if (key == "args" && *p == '{') {
        args.clear();  // a repeated member replaces the one before
        return parse_args(p, end, limits);
      }
      break;
    default:
      break;
  }
  if (field) return parse_value(p, end, limits, 1, *field);
  others.push_back({key, {}});
  return parse_value(p, end, limits, 1, others.back().value);
}

Scan Record::parse_args(const char*& p, const char* end, const Limits& limits) {
  p = skip_space(p + 1);
  if (*p == '}') {
    ++p;
    return Scan::kOk;
  }
  for (;;) {
    Field& field = args.emplace_back();
    if (const Scan s = parse_key(p, end, limits, field.key); s != Scan::kOk) return s;
    if (const Scan s = parse_value(p, end, limits, 2, field.value); s != Scan::kOk) return s;
    p = skip_space(p);
    if (*p == '}') {
      ++p;
      return Scan::kOk;
    }
    if (*p != ',') return p >= end ? Scan::kMore : Scan::kBad;
    p = skip_space(p + 1);
  }
}

Scan Record::parse_value(const char*& p, const char* end, const Limits& limits, int depth, Value& out) {
  const char* const begin = p;
  out.reset();
  if (*p == '"') {
    Text text;
    if (const Scan s = scan_string(p, end, text); s != Scan::kOk) return s;
    if (text.raw.size() > limits.string_bytes) fault = RecordFault::kTooLarge;
    out.type = Type::kStr;
    out.token = {begin, static_cast<std::size_t>(p - begin)};
    out.text = text.raw;
    if (!text.plain) {
      out.text = keep(unescape(text.raw));
      std::string quoted;
      append_quoted(quoted, out.text);
      out.token = keep(std::move(quoted));
    }
    return Scan::kOk;
  }
  if (is_digit(*p) || *p == '-' || ((*p | 0x20) == 'n' && p[1] != 'u') || (*p | 0x20) == 'i') {
    return parse_number(p, end, out);
  }
  bool clean = true;
  if (const Scan s = skip_value(p, end, limits.depth - depth, clean); s != Scan::kOk) return s;
  out.token = {begin, static_cast<std::size_t>(p - begin)};
  if (out.token.size() > limits.string_bytes) fault = RecordFault::kTooLarge;
  if (!clean) out.token = keep(clean_json(out.token));
  out.text = out.token;
  return Scan::kOk;
}

Scan Record::parse_number(const char*& p, const char* end, Value& out) {
  const char* const begin = p;
  NumberForm form;
  if (const Scan s = scan_number(p, end, form); s != Scan::kOk) return s;
  out.text = out.token = {begin, static_cast<std::size_t>(p - begin)};
  if (p - begin > kNumberCap) fault = RecordFault::kTooLarge;
  if (form == NumberForm::kNotANumber) {
    // No JSON reader takes NaN: it travels as a string from here on.
    out.type = Type::kStr;
    std::string quoted;
    append_quoted(quoted, out.text);
    out.token = keep(std::move(quoted));
    return Scan::kOk;
  }
  out.number = true;
  if (form == NumberForm::kInteger) {
    if (p - begin <= 18) {
      const bool negative = *begin == '-';
      std::int64_t value = 0;
      for (const char* q = begin + negative; q < p; ++q) value = value * 10 + (*q - '0');
      out.integer = negative ? -value : value;
      out.type = Type::kInt;
      return Scan::kOk;
    }
    const auto result = std::from_chars(begin, p, out.integer);
    // INT64_MIN is the sentinel of absence in int64 columns.
    if (result.ec == std::errc() && out.integer != INT64_MIN) out.type = Type::kInt;
    return Scan::kOk;
  }
  const auto result = std::from_chars(begin, p, out.real);
  if (result.ec == std::errc() && std::isfinite(out.real)) out.type = Type::kFloat;
  return Scan::kOk;
}

}  // namespace profd::scan
