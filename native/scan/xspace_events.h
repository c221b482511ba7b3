// Events of an XLine (profd.xspace.XEvent) as columns of the EventTable, and their stats by name and type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "interner.h"

namespace profd::scan {

// Distinct 64-bit values and their places, in order of first use.
class Places {
 public:
  std::int32_t of(std::int64_t value) {
    if (!values.empty() && values[static_cast<std::size_t>(last_)] == value) return last_;
    const auto [found, fresh] = known_.try_emplace(value, static_cast<std::int32_t>(values.size()));
    if (fresh) values.push_back(value);
    return last_ = found->second;
  }

  std::vector<std::int64_t> values;

 private:
  std::unordered_map<std::int64_t, std::int32_t, SeededHash> known_;
  std::int32_t last_ = 0;  // neighbours are mostly alike
};

// The values of one stat with one type, in the order of rows.
struct StatColumn {
  std::int64_t id = 0;
  std::uint8_t type = 0;               // field number in XStat
  bool repeats = false;                // a row has several
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> numbers;   // bits of double, uint64 and int64
  std::vector<std::int32_t> words;     // of texts and refs: their place in `distinct`
  Places distinct;                     // of a ref its id, of a text its place in EventColumns::texts

  bool is_number() const { return type <= 4; }
};

struct EventColumns {
  std::vector<std::int64_t> start, end;         // Unix ns
  std::vector<std::uint16_t> start_ps, end_ps;  // what is left of them
  bool has_ps = false;
  std::vector<std::int32_t> metadata;           // place in `metadata_ids`
  Places metadata_ids;
  std::vector<std::int64_t> aggregates, occurrences;  // rows that are aggregates, and of how many events
  std::vector<StatColumn> stats;
  std::vector<std::string_view> texts;                // distinct
  std::size_t next = 0;                               // where to go on
  std::int64_t fault = -1;
  std::int64_t malformed = 0;         // events that are no messages
  std::int64_t bad_time = 0;          // events whose times are beyond 64 bits; in no column
  std::int64_t end_before_start = 0;  // events that are in the columns
  std::int64_t stats_beyond = 0;      // stats beyond `event_stats` of an event
  std::int64_t columns_beyond = 0;    // stats whose name and type would be a column beyond `stat_columns`
  std::int64_t without_value = 0;     // stats that have none
};

struct EventLimits {
  std::size_t events;        // at most, per call
  std::size_t stats;         // about, per call
  std::size_t event_stats;   // of one event
  std::size_t stat_columns;  // names and types, per call
};

// `base_ns` is added to the offsets of events; without a value (it is out of range) all times are bad.
EventColumns scan_events(const std::uint8_t* data, std::size_t first, std::size_t last, std::int64_t base_ns,
                         const EventLimits& limits);

}  // namespace profd::scan
