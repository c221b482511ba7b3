// Protobuf's wire format, read where it lies: no message is built and nothing is followed deeper than it is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
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

  // False: at the end, or at something that is no field.
  bool next(WireField& field) {
    if (at_ >= last_) return false;
    std::size_t at = at_;
    std::uint64_t tag;
    if (!varint(tag, at) || (tag >> 3) == 0 || (tag >> 32) != 0) return false;
    field = {tag >> 3, static_cast<WireType>(tag & 7), 0, 0, false};
    if (!value(field, at)) return false;
    at_ = at;
    return true;
  }
  bool done() const { return at_ >= last_; }
  std::size_t position() const { return at_; }

 private:
  bool varint(std::uint64_t& value, std::size_t& at) const {
    if (at < last_ && data_[at] < 0x80) {
      value = data_[at++];
      return true;
    }
    return long_varint(value, at);
  }

  bool long_varint(std::uint64_t& value, std::size_t& at) const;

  bool value(WireField& field, std::size_t& at) const {
    switch (field.type) {
      case kVarint:
        return varint(field.value, at);
      case kLength:
        return length(field, at);
      default:
        return fixed(field, at);
    }
  }

  bool length(WireField& field, std::size_t& at) const {
    std::uint64_t length;
    if (!varint(length, at)) return false;
    field.value = at;
    field.cut = length > last_ - at;
    field.length = field.cut ? last_ - at : length;
    at += field.length;
    return true;
  }

  bool fixed(WireField& field, std::size_t& at) const;

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

}  // namespace profd::scan
