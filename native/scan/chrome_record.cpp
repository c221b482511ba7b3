#include "chrome_record.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "strings.h"

namespace profd::scan {
namespace {

constexpr std::string_view kArgs = "args";
constexpr int kArgDepth = 2;  // in brackets: the record and "args"

Slot slot_of(std::string_view key) {
  static constexpr std::pair<std::string_view, Slot> kSlots[] = {
      {"name", Slot::kName}, {"cat", Slot::kCat}, {"ph", Slot::kPhase}, {"pid", Slot::kPid}, {"tid", Slot::kTid},
      {"ts", Slot::kTs},     {"dur", Slot::kDur}, {"id", Slot::kId},    {"bp", Slot::kBp},
  };
  for (const auto& [name, slot] : kSlots) {
    if (name == key) return slot;
  }
  return Slot::kOther;
}

}  // namespace

double Value::real() const {
  static constexpr double kPowers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                       1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
  constexpr std::int64_t kExact = 1ll << 53;
  // Both are exact, so that what the division gives is the nearest double, as from_chars has it.
  if (fraction != kLong && -kExact <= integer && integer <= kExact) return static_cast<double>(integer) / kPowers[fraction];
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

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
  ++p;
  for (Step* step = &steps_.start();;) {
    if (const Scan s = parse_step(p, end, limits, *step, step); s != Scan::kOk) return s;
    if (step->slot == Slot::kEnd) return Scan::kOk;
    const int depth = step->place == Place::kArgs ? kArgDepth : 1;
    if (const Scan s = parse_value(p, end, limits, depth, value_of(*step)); s != Scan::kOk) return s;
  }
}

Scan Record::parse_step(const char*& p, const char* end, const Limits& limits, Step& from, Step*& step) {
  if (Step* const known = Steps::follow(from, p)) [[likely]] {
    p += known->size;
    if (known->slot != Slot::kEnd) p = skip_space(p);  // there may be more blanks than last time
    if (known->opens_args) args.clear();
    step = known;
    return Scan::kOk;
  }
  const char* const begin = p;
  const std::size_t rewritten = kept_.size();
  Step read;
  if (const Scan s = read_step(p, end, limits, from.place, read); s != Scan::kOk) return s;
  // The text alone says what the step is, but for rewritten keys and for "args", of which the value has a say.
  const bool plain = kept_.size() == rewritten && fault == RecordFault::kNone && read.key != kArgs;
  step = plain ? steps_.keep(from, {begin, static_cast<std::size_t>(p - begin)}, read) : nullptr;
  if (!step) {
    unknown_ = read;
    step = &unknown_;
  }
  return Scan::kOk;
}

Scan Record::read_step(const char*& p, const char* end, const Limits& limits, Place from, Step& out) {
  bool first = from == Place::kOpen;
  out.place = first ? Place::kMembers : from;
  for (;;) {
    p = skip_space(p);
    if (*p == '}') {
      ++p;
      if (out.place == Place::kMembers) return Scan::kOk;
      out.place = Place::kMembers;
      first = false;
      continue;
    }
    if (!first) {
      if (*p != ',') return p >= end ? Scan::kMore : Scan::kBad;
      p = skip_space(p + 1);
    }
    if (const Scan s = parse_key(p, end, limits, out.key); s != Scan::kOk) return s;
    if (out.place == Place::kArgs) {
      out.slot = Slot::kArgument;
      return Scan::kOk;
    }
    if (out.key != kArgs || *p != '{') {
      out.slot = slot_of(out.key);
      return Scan::kOk;
    }
    args.clear();  // a repeated member replaces the one before
    out.opens_args = true;
    out.place = Place::kArgs;
    first = true;
    ++p;
  }
}

Value& Record::value_of(const Step& step) {
  if (step.slot == Slot::kArgument || step.slot == Slot::kOther) {
    return (step.slot == Slot::kArgument ? args : others).emplace_back(Field{step.key, step.number, {}}).value;
  }
  static constexpr Value Record::*kFields[] = {&Record::name, &Record::cat, &Record::phase, &Record::pid, &Record::tid,
                                               &Record::ts,   &Record::dur, &Record::id,    &Record::bp};
  Value& value = this->*kFields[static_cast<std::size_t>(step.slot)];
  value.reset();
  return value;
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

Scan Record::parse_value(const char*& p, const char* end, const Limits& limits, int depth, Value& out) {
  const char* const begin = p;
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
  return parse_nested(p, end, limits, depth, out);
}

Scan Record::parse_nested(const char*& p, const char* end, const Limits& limits, int depth, Value& out) {
  const char* const begin = p;
  // Of one depth only: what is within the limit here may be beyond it there.
  const bool may_be_seen = depth == kArgDepth && (*p == '[' || *p == '{');
  if (const SeenTexts::Seen* const seen = may_be_seen ? seen_.find(p, end) : nullptr) {
    p += seen->text.size();
    out.set({begin, seen->text.size()});
    out.seen = seen->id;
    return Scan::kOk;
  }
  bool clean = true;
  if (const Scan s = skip_value(p, end, limits.depth - depth, clean); s != Scan::kOk) return s;
  out.token = {begin, static_cast<std::size_t>(p - begin)};
  const bool large = out.token.size() > limits.string_bytes;
  if (large) fault = RecordFault::kTooLarge;
  if (may_be_seen && clean && !large) out.seen = seen_.keep(out.token);
  if (!clean) out.token = keep(clean_json(out.token));
  out.text = out.token;
  return Scan::kOk;
}

Scan Record::parse_number(const char*& p, const char* end, Value& out) {
  const char* const begin = p;
  if (ShortNumber number; scan_short_number(p, number)) [[likely]] {
    out.type = number.fraction ? Type::kFloat : Type::kInt;
    out.number = true;
    out.fraction = static_cast<std::int8_t>(number.fraction);
    out.integer = number.value;
    out.set({begin, static_cast<std::size_t>(p - begin)});
    return Scan::kOk;
  }
  NumberForm form;
  if (const Scan s = scan_number(p, end, form); s != Scan::kOk) return s;
  out.set({begin, static_cast<std::size_t>(p - begin)});
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
    const auto result = std::from_chars(begin, p, out.integer);
    // INT64_MIN is the sentinel of absence in int64 columns.
    if (result.ec == std::errc() && out.integer != INT64_MIN) out.type = Type::kInt;
    return Scan::kOk;
  }
  double real;
  const auto result = std::from_chars(begin, p, real);
  if (result.ec == std::errc() && std::isfinite(real)) out.type = Type::kFloat;
  return Scan::kOk;
}

}  // namespace profd::scan
