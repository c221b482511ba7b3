// One trace event of the Chrome format, split into its fields. Views into the scan buffer.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "chrome_steps.h"
#include "seen_texts.h"
#include "text.h"

namespace profd::scan {

enum class Type : std::uint8_t { kInt, kFloat, kStr, kJson };
inline constexpr std::string_view kTypeNames[] = {"int", "float", "str", "json"};

struct Value {
  Type type = Type::kJson;
  bool number = false;           // the text is a JSON number
  std::int8_t fraction = kLong;  // of a short number (text.h): digits behind its point
  std::int64_t integer = 0;      // of kInt; of a short decimal its digits without the point
  std::uint64_t seen = 0;        // of an array or object among the arguments: the same, the same text (SeenTexts)
  std::string_view text;         // as it came; of a string: its value
  std::string_view token;        // as JSON, quotes included

  static constexpr std::int8_t kLong = -1;

  double real() const;  // of kFloat

  // Text that is its own token. One assignment after the other: GCC copies a pair through memory that it has just
  // written in halves, which the processor waits for.
  void set(std::string_view both) {
    text = both;
    token = both;
  }

  // Absent. `integer` means something by the others only, `seen` in arguments only, and they are left alone: this runs
  // for every field.
  void reset() {
    type = Type::kJson, number = false, fraction = kLong;
    text = {};
    token = {};
  }
};

struct Field {
  std::string_view key;
  std::int32_t step = -1;  // the number of the step that led here, if it is kept: the same step, the same key
  Value value;
};

struct Limits {
  std::size_t event_bytes = 0;
  int depth = 0;
  std::size_t string_bytes = 0;
  std::size_t arg_keys = 0;
  std::size_t dictionary_bytes = 0;
  std::size_t tracks = 0;
  std::size_t open_rows = 0;  // begins that wait for their end
};

// What a parsed record can be besides whole.
enum class RecordFault : std::uint8_t { kNone, kTooLarge };

class Record {
 public:
  // The fields that every phase has. Absent: an empty token.
  Value name, cat, phase, pid, tid, ts, dur, id, bp;
  std::vector<Field> args;    // members of "args"
  std::vector<Field> others;  // every other member
  RecordFault fault = RecordFault::kNone;

  // `p` stands on '{'; afterwards behind '}'.
  Scan parse(const char*& p, const char* end, const Limits& limits);

 private:
  Scan parse_step(const char*& p, const char* end, const Limits& limits, Step& from, Step*& step);
  Scan read_step(const char*& p, const char* end, const Limits& limits, Place from, Step& out);
  Scan parse_key(const char*& p, const char* end, const Limits& limits, std::string_view& key);
  Scan parse_value(const char*& p, const char* end, const Limits& limits, int depth, Value& out);
  Scan parse_nested(const char*& p, const char* end, const Limits& limits, int depth, Value& out);
  Scan parse_number(const char*& p, const char* end, Value& out);
  Value& value_of(const Step& step);
  std::string_view keep(std::string text);
  void clear();

  Steps steps_;
  Step unknown_;  // the last one that is not kept
  SeenTexts seen_;
  std::deque<std::string> kept_;  // rewritten text that fields view; lives until the next parse
};

}  // namespace profd::scan
