// One trace event of the Chrome format, split into its fields. Views into the scan buffer.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "text.h"

namespace profd::scan {

enum class Type : std::uint8_t { kInt, kFloat, kStr, kJson };
inline constexpr std::string_view kTypeNames[] = {"int", "float", "str", "json"};

struct Value {
  Type type = Type::kJson;
  bool number = false;   // the text is a JSON number
  std::int64_t integer = 0;
  double real = 0;
  std::string_view text;  // as it came; of a string: its value
  std::string_view token;  // as JSON, quotes included

  // Absent. `integer` and `real` mean something by `type` only and are left alone: this runs for every field.
  void reset() { type = Type::kJson, number = false, text = token = {}; }
};

struct Field {
  std::string_view key;
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
  Scan parse_member(const char*& p, const char* end, const Limits& limits);
  Scan parse_args(const char*& p, const char* end, const Limits& limits);
  Scan parse_key(const char*& p, const char* end, const Limits& limits, std::string_view& key);
  Scan parse_value(const char*& p, const char* end, const Limits& limits, int depth, Value& out);
  Scan parse_number(const char*& p, const char* end, Value& out);
  std::string_view keep(std::string text);
  void clear();

  std::deque<std::string> kept_;  // rewritten text that fields view; lives until the next parse
};

}  // namespace profd::scan
