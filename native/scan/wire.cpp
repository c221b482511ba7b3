#include "wire.h"

#include <cstring>

namespace profd::scan {

bool WireReader::long_varint(std::uint64_t& value, std::size_t& at) const {
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

bool WireReader::fixed(WireField& field, std::size_t& at) const {
  // No groups: none of these messages ever had any.
  const std::size_t size = field.type == kFixed64 ? 8 : field.type == kFixed32 ? 4 : 0;
  if (size == 0 || last_ - at < size) return false;
  std::memcpy(&field.value, data_ + at, size);
  at += size;
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

}  // namespace profd::scan
