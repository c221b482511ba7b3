#include "wire.h"

#include <cstring>

namespace profd::scan {

bool WireReader::varint(std::uint64_t& value, std::size_t& at) const {
  value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (at >= last_) return false;
    const std::uint8_t byte = data_[at++];
    // The tenth byte has one bit left; what lies above it is dropped, as protobuf does.
    if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool WireReader::next(WireField& field) {
  if (at_ >= last_) return false;
  std::size_t at = at_;
  std::uint64_t tag;
  if (!varint(tag, at) || (tag >> 3) == 0 || (tag >> 32) != 0) return false;
  field = {tag >> 3, static_cast<WireType>(tag & 7), 0, 0, false};
  switch (tag & 7) {
    case kVarint:
      if (!varint(field.value, at)) return false;
      break;
    case kFixed64:
      if (last_ - at < 8) return false;
      std::memcpy(&field.value, data_ + at, 8);
      at += 8;
      break;
    case kFixed32: {
      if (last_ - at < 4) return false;
      std::uint32_t value;
      std::memcpy(&value, data_ + at, 4);
      field.value = value;
      at += 4;
      break;
    }
    case kLength: {
      std::uint64_t length;
      if (!varint(length, at)) return false;
      field.value = at;
      field.cut = length > last_ - at;
      field.length = field.cut ? last_ - at : length;
      at += field.length;
      break;
    }
    default:
      return false;  // groups: none of these messages ever had any
  }
  at_ = at;
  return true;
}

FieldColumns scan_fields(const std::uint8_t* data, std::size_t first, std::size_t last, std::uint64_t wanted,
                         std::size_t limit) {
  FieldColumns out;
  WireReader reader(data, first, last);
  WireField field;
  std::size_t begin = first;
  while (reader.next(field)) {
    if (field.number < 64 && (wanted >> field.number & 1) != 0) {
      if (out.number.size() == limit) {
        out.full = true;
        return out;
      }
      out.number.push_back(static_cast<std::int32_t>(field.number));
      out.type.push_back(field.type);
      out.value.push_back(static_cast<std::int64_t>(field.value));
      out.length.push_back(static_cast<std::int64_t>(field.length));
    }
    if (field.cut) {
      out.fault = static_cast<std::int64_t>(begin);
      return out;
    }
    begin = reader.position();
  }
  if (!reader.done()) out.fault = static_cast<std::int64_t>(reader.position());
  return out;
}

namespace {

class Events {
 public:
  Events(const std::uint8_t* data, std::size_t event_stats) : data_(data), event_stats_(event_stats) {}

  // False: not a message; nothing of it is kept.
  bool event(std::size_t first, std::size_t last) {
    const std::size_t stats = out.stat_row.size();
    std::int64_t metadata = 0, value = 0, duration = 0;
    std::uint8_t which = 0;
    std::size_t own_stats = 0;
    WireReader reader(data_, first, last);
    WireField field;
    bool good = true;
    while (good && reader.next(field)) {
      const auto number = static_cast<std::int64_t>(field.value);
      if (field.cut) {
        good = false;
      } else if (field.type == kVarint && field.number == 1) {
        metadata = number;
      } else if (field.type == kVarint && (field.number == 2 || field.number == 5)) {
        value = number, which = static_cast<std::uint8_t>(field.number);
      } else if (field.type == kVarint && field.number == 3) {
        duration = number;
      } else if (field.type == kLength && field.number == 4) {
        if (own_stats++ < event_stats_) {
          good = stat(field.value, field.value + field.length);
        } else {
          ++out.stats_beyond;
        }
      }
    }
    if (!good || !reader.done()) {
      out.stat_row.resize(stats), out.stat_id.resize(stats), out.stat_value.resize(stats), out.stat_type.resize(stats);
      ++out.malformed;
      return false;
    }
    out.metadata_id.push_back(metadata);
    out.value.push_back(value);
    out.which.push_back(which);
    out.duration.push_back(duration);
    return true;
  }

  EventColumns out;

 private:
  bool stat(std::size_t first, std::size_t last) {
    std::int64_t id = 0, value = 0;
    std::uint8_t type = 0;
    WireReader reader(data_, first, last);
    WireField field;
    while (reader.next(field)) {
      if (field.cut) return false;
      const bool number = field.type == kVarint && (field.number == 3 || field.number == 4 || field.number == 7);
      if (field.type == kVarint && field.number == 1) {
        id = static_cast<std::int64_t>(field.value);
      } else if (number || (field.type == kFixed64 && field.number == 2)) {
        value = static_cast<std::int64_t>(field.value), type = static_cast<std::uint8_t>(field.number);
      } else if (field.type == kLength && (field.number == 5 || field.number == 6)) {
        value = text({reinterpret_cast<const char*>(data_) + field.value, field.length});
        type = static_cast<std::uint8_t>(field.number);
      }
    }
    if (!reader.done()) return false;
    out.stat_row.push_back(static_cast<std::int64_t>(out.metadata_id.size()));
    out.stat_id.push_back(id);
    out.stat_type.push_back(type);
    out.stat_value.push_back(value);
    return true;
  }

  std::int64_t text(std::string_view value) {
    const auto [found, fresh] = places_.try_emplace(value, static_cast<std::int64_t>(out.texts.size()));
    if (fresh) out.texts.push_back(value);
    return found->second;
  }

  const std::uint8_t* data_;
  std::size_t event_stats_;
  std::unordered_map<std::string_view, std::int64_t> places_;
};

}  // namespace

EventColumns scan_events(const std::uint8_t* data, std::size_t first, std::size_t last, std::size_t events,
                         std::size_t stats, std::size_t event_stats) {
  Events rows(data, event_stats);
  WireReader reader(data, first, last);
  WireField field;
  std::size_t seen = 0;
  // Malformed events count as seen, so that a slice is bounded whatever it is made of.
  while (seen < events && rows.out.stat_row.size() < stats && reader.next(field)) {
    const bool is_event = field.number == 4 && field.type == kLength;
    if (field.cut) {
      rows.out.fault = static_cast<std::int64_t>(reader.position());
      if (is_event) ++rows.out.malformed;
      break;
    }
    if (is_event) rows.event(field.value, field.value + field.length), ++seen;
  }
  const bool stopped = seen >= events || rows.out.stat_row.size() >= stats;
  if (!stopped && !reader.done() && rows.out.fault < 0) {
    rows.out.fault = static_cast<std::int64_t>(reader.position());
  }
  rows.out.next = rows.out.fault >= 0 ? last : reader.position();
  return std::move(rows.out);
}

}  // namespace profd::scan
