#include "xspace_events.h"

#include <algorithm>
#include <array>
#include <utility>

#include "wire.h"

namespace profd::scan {

namespace {

// Sums of three such times stay within 64 bits.
constexpr std::int64_t kPsMax = std::int64_t{1} << 62;
constexpr std::int64_t kNsMax = std::int64_t{1} << 61;

enum EventField : std::uint64_t { kMetadataId = 1, kOffset = 2, kDuration = 3, kStats = 4, kOccurrences = 5 };
enum StatField : std::uint8_t { kStatId = 1, kDouble = 2, kUint64 = 3, kInt64 = 4, kStr = 5, kBytes = 6, kRef = 7 };

bool within(std::int64_t value, std::int64_t most) { return value > -most && value < most; }

struct Moment {
  std::int64_t ns;
  std::uint16_t ps;
};

Moment split(std::int64_t ps) {
  std::int64_t ns = ps / 1000, rest = ps % 1000;
  if (rest < 0) --ns, rest += 1000;
  return {ns, static_cast<std::uint16_t>(rest)};
}

struct Event {
  std::int64_t metadata = 0, value = 0, duration = 0;
  std::uint64_t which = 0;  // what `value` is: 0 nothing, kOffset or kOccurrences

  std::int64_t offset() const { return which == kOffset ? value : 0; }
};

class Scan {
 public:
  // `bytes`: how many are left to read, by which room is made for as many events as they can be.
  Scan(const std::uint8_t* data, std::size_t bytes, std::int64_t base_ns, const EventLimits& limits)
      : data_(data), base_(base_ns), limits_(limits), room_(std::min(limits.events, bytes / kEventBytes + 1)) {
    out.start.reserve(room_), out.end.reserve(room_), out.metadata.reserve(room_);
    out.start_ps.reserve(room_), out.end_ps.reserve(room_);
  }

  // Nothing is kept of what is no message, or at no time.
  void event(std::size_t first, std::size_t last) {
    Event found;
    expected_ = 0;
    touched_.clear();
    const bool message = read(first, last, found);
    const bool timed = within(found.offset(), kPsMax) && within(found.duration, kPsMax) && within(base_, kNsMax);
    if (message && timed) {
      add(found);
    } else {
      forget_stats();
      ++(message ? out.bad_time : out.malformed);
    }
  }

  std::size_t stats_seen() const { return stats_seen_; }

  EventColumns out;

 private:
  bool read(std::size_t first, std::size_t last, Event& event) {
    std::size_t own_stats = 0;
    WireReader reader(data_, first, last);
    WireField field;
    while (reader.next(field)) {
      if (field.cut) return false;
      const auto number = static_cast<std::int64_t>(field.value);
      if (field.type == kVarint) {
        switch (field.number) {
          case kMetadataId: event.metadata = number; break;
          case kOffset:
          case kOccurrences: event.value = number, event.which = field.number; break;
          case kDuration: event.duration = number; break;
          default: break;
        }
      } else if (field.type == kLength && field.number == kStats) {
        if (own_stats++ >= limits_.event_stats) {
          ++out.stats_beyond;
        } else if (!stat(field.value, field.value + field.length)) {
          return false;
        }
      }
    }
    return reader.done();
  }

  void add(const Event& event) {
    if (event.which == kOccurrences) {
      out.aggregates.push_back(row());
      out.occurrences.push_back(event.value);
    }
    const Moment start = split(event.offset()), end = split(event.offset() + event.duration);
    out.start.push_back(base_ + start.ns);
    out.end.push_back(base_ + end.ns);
    out.start_ps.push_back(start.ps);
    out.end_ps.push_back(end.ps);
    out.has_ps |= (start.ps | end.ps) != 0;
    out.end_before_start += event.duration < 0;
    out.metadata.push_back(out.metadata_ids.of(event.metadata));
  }

  struct Stat {
    std::int64_t id = 0, value = 0;  // of a text where it begins
    std::uint8_t type = 0;           // 0: it has no value
    std::size_t length = 0;          // of a text
  };

  bool stat(std::size_t first, std::size_t last) {
    Stat found;
    if (!usual_stat(first, last, found) && !any_stat(first, last, found)) return false;
    ++stats_seen_;
    if (found.type == 0) {
      ++out.without_value;
      return true;
    }
    const std::uint32_t place = expected(found.id, found.type);
    if (place == kNoColumn) {
      ++out.columns_beyond;
    } else {
      touched_.push_back(place);
      put(out.stats[place], found.value, found.length);
    }
    return true;
  }

  // As every writer has them: a small id, its value, nothing else. False: look closer.
  bool usual_stat(std::size_t first, std::size_t last, Stat& found) const {
    if (last - first < 4 || data_[first] != (kStatId << 3 | kVarint) || data_[first + 1] >= 0x80) return false;
    const std::uint8_t tag = data_[first + 2];
    std::uint64_t value = 0;
    std::size_t at = first + 3;
    for (unsigned shift = 0;; shift += 7) {
      if (at >= last || shift > 56) return false;
      value |= static_cast<std::uint64_t>(data_[at] & 0x7f) << shift;
      if (data_[at++] < 0x80) break;
    }
    found.id = data_[first + 1];
    found.type = tag >> 3;
    switch (tag) {
      case kUint64 << 3 | kVarint:
      case kInt64 << 3 | kVarint:
      case kRef << 3 | kVarint:
        found.value = static_cast<std::int64_t>(value);
        return at == last;
      case kStr << 3 | kLength:
      case kBytes << 3 | kLength:
        found.value = static_cast<std::int64_t>(at);
        found.length = value;
        return value == last - at;
      default:
        return false;
    }
  }

  // Whatever protobuf allows: fields in any order, several times, unknown ones.
  bool any_stat(std::size_t first, std::size_t last, Stat& found) const {
    found = {};
    WireReader reader(data_, first, last);
    WireField field;
    while (reader.next(field)) {
      if (field.cut) return false;
      const bool number = field.type == kVarint && (field.number == kUint64 || field.number == kInt64 || field.number == kRef);
      const bool text = field.type == kLength && (field.number == kStr || field.number == kBytes);
      if (field.type == kVarint && field.number == kStatId) {
        found.id = static_cast<std::int64_t>(field.value);
      } else if (number || text || (field.type == kFixed64 && field.number == kDouble)) {
        found.value = static_cast<std::int64_t>(field.value), found.type = static_cast<std::uint8_t>(field.number);
        found.length = field.length;
      }
    }
    return reader.done();
  }

  void put(StatColumn& column, std::int64_t value, std::size_t length) {
    column.repeats |= !column.rows.empty() && column.rows.back() == row();
    column.rows.push_back(row());
    if (column.is_number()) {
      column.numbers.push_back(value);
    } else if (column.type == kRef) {
      column.words.push_back(column.distinct.of(value));
    } else {
      column.words.push_back(word(column, {reinterpret_cast<const char*>(data_) + value, length}));
    }
  }

  // Events of a line have mostly the same stats in the same order: the next one is where it was in the event before.
  std::uint32_t expected(std::int64_t id, std::uint8_t type) {
    const std::size_t turn = expected_++;
    if (turn < order_.size()) {
      const StatColumn& likely = out.stats[order_[turn]];
      if (likely.id == id && likely.type == type) return order_[turn];
    }
    const std::uint32_t place = place_of(id, type);
    if (place == kNoColumn) return place;
    if (turn < order_.size()) {
      order_[turn] = place;
    } else if (turn == order_.size() && turn < kOrderMax) {
      order_.push_back(place);
    }
    return place;
  }

  std::uint32_t place_of(std::int64_t id, std::uint8_t type) {
    auto& same_id = columns_.try_emplace(id).first->second;
    if (same_id[type] != kNoColumn) return same_id[type];
    if (out.stats.size() == limits_.stat_columns) return kNoColumn;
    same_id[type] = static_cast<std::uint32_t>(out.stats.size());
    StatColumn& fresh = out.stats.emplace_back();
    fresh.id = id, fresh.type = type;
    if (row() == 0) {  // what the first event has mostly all have
      fresh.rows.reserve(room_);
      fresh.is_number() ? fresh.numbers.reserve(room_) : fresh.words.reserve(room_);
    }
    return same_id[type];
  }

  std::int32_t word(StatColumn& column, std::string_view text) {
    if (!column.words.empty()) {
      const std::int32_t last = column.words.back();
      const auto known = column.distinct.values[static_cast<std::size_t>(last)];
      if (out.texts[static_cast<std::size_t>(known)] == text) return last;
    }
    const auto [found, fresh] = texts_.try_emplace(text, static_cast<std::int64_t>(out.texts.size()));
    if (fresh) out.texts.push_back(text);
    return column.distinct.of(found->second);
  }

  // Those of the event that is read at the moment.
  void forget_stats() {
    for (const std::uint32_t place : touched_) {
      StatColumn& column = out.stats[place];
      column.rows.pop_back();
      column.is_number() ? column.numbers.pop_back() : column.words.pop_back();
    }
  }

  std::int64_t row() const { return static_cast<std::int64_t>(out.start.size()); }

  static constexpr std::size_t kOrderMax = 64;
  static constexpr std::size_t kEventBytes = 20;  // of a small one with a stat or two
  static constexpr std::uint32_t kNoColumn = 0xffffffff;

  struct ByType : std::array<std::uint32_t, kRef + 1> {
    ByType() { fill(kNoColumn); }
  };

  const std::uint8_t* data_;
  std::int64_t base_;
  EventLimits limits_;
  std::size_t room_;
  std::size_t stats_seen_ = 0, expected_ = 0;
  std::vector<std::uint32_t> order_;    // columns of the stats of the event before
  std::vector<std::uint32_t> touched_;  // of the stats of this event, once for each
  std::unordered_map<std::int64_t, ByType, SeededHash> columns_;
  std::unordered_map<std::string_view, std::int64_t, SeededHash> texts_;
};

}  // namespace

EventColumns scan_events(const std::uint8_t* data, std::size_t first, std::size_t last, std::int64_t base_ns,
                         const EventLimits& limits) {
  Scan scan(data, last - first, base_ns, limits);
  EventColumns& out = scan.out;
  WireReader reader(data, first, last);
  WireField field;
  std::size_t seen = 0;
  // Malformed events count as seen, so that a slice is bounded whatever it is made of.
  while (seen < limits.events && scan.stats_seen() < limits.stats && reader.next(field)) {
    const bool is_event = field.number == 4 && field.type == kLength;
    if (field.cut) {
      out.fault = static_cast<std::int64_t>(reader.position());
      if (is_event) ++out.malformed;
      break;
    }
    if (is_event) scan.event(field.value, field.value + field.length), ++seen;
  }
  const bool stopped = seen >= limits.events || scan.stats_seen() >= limits.stats;
  if (!stopped && !reader.done() && out.fault < 0) out.fault = static_cast<std::int64_t>(reader.position());
  out.next = out.fault >= 0 ? last : reader.position();
  return std::move(scan.out);
}

}  // namespace profd::scan
