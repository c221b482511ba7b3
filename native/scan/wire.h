// Protobuf's wire format, read where it lies: no message is built and nothing is followed deeper than it is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace profd::scan {

enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

struct WireField {
  std::uint64_t number;
  WireType type;
  std::uint64_t value;    // the number; of kLength where it begins
  std::uint64_t length;   // of kLength only
  bool cut;               // a kLength that says it is longer than what holds it
};

// The fields of one message, front to back. `position` after a failed `next` is where the fault is.
class WireReader {
 public:
  WireReader(const std::uint8_t* data, std::size_t first, std::size_t last) : data_(data), at_(first), last_(last) {}

  bool next(WireField& field);  // false: at the end, or at something that is no field
  bool done() const { return at_ >= last_; }
  std::size_t position() const { return at_; }

 private:
  bool varint(std::uint64_t& value, std::size_t& at) const;

  const std::uint8_t* data_;
  std::size_t at_, last_;
};

// Fields of one message as columns; those with a bit in `wanted` (numbers below 64).
struct FieldColumns {
  std::vector<std::int32_t> number;
  std::vector<std::uint8_t> type;
  std::vector<std::int64_t> value, length;
  std::int64_t fault = -1;  // byte at which the message is no message any more; -1: none
  bool full = false;        // more fields than `limit`
};

FieldColumns scan_fields(const std::uint8_t* data, std::size_t first, std::size_t last, std::uint64_t wanted,
                         std::size_t limit);

// Events of an XLine (profd.xspace) as columns, and their stats, each with the row it belongs to.
struct EventColumns {
  std::vector<std::int64_t> metadata_id, value, duration;
  std::vector<std::uint8_t> which;  // what `value` is: 0 nothing, 2 offset_ps, 5 num_occurrences
  std::vector<std::int64_t> stat_row, stat_id, stat_value;  // bits of the number; of texts their place in `texts`
  std::vector<std::uint8_t> stat_type;                      // field number in XStat; 0: it has no value
  std::vector<std::string_view> texts;                      // distinct
  std::size_t next = 0;                                     // where to go on
  std::int64_t fault = -1;
  std::int64_t malformed = 0;      // events that are no messages
  std::int64_t stats_beyond = 0;   // stats beyond `event_stats` of an event
};

// At most `events` events, and about `stats` stats, from `first`.
EventColumns scan_events(const std::uint8_t* data, std::size_t first, std::size_t last, std::size_t events,
                         std::size_t stats, std::size_t event_stats);

}  // namespace profd::scan
