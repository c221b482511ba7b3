#include "chunk_body.h"

#include <algorithm>

namespace profd::scan {
namespace {

std::uint64_t unzigzag(std::uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

}  // namespace

bool Body::split(std::string_view body) {
  present_ = 0;
  sections_.fill({});
  Cursor cursor(body);
  while (!cursor.done()) {
    const std::uint64_t tag = cursor.varint();
    const std::string_view content = cursor.bytes(cursor.varint());
    if (cursor.bad()) return false;
    if (tag == 0 || tag >= kSections) continue;
    if (has(static_cast<unsigned>(tag))) return false;
    sections_[tag] = content;
    present_ |= 1u << tag;
  }
  return true;
}

bool read_labels(std::string_view section, std::vector<Label>& labels) {
  constexpr std::size_t kLeastBytes = 5;
  labels.clear();
  if (section.empty()) return true;
  Cursor cursor(section);
  labels.assign(cursor.count(kLeastBytes), Label{});
  std::uint64_t name = 0;
  for (Label& label : labels) {
    name += cursor.svarint();
    label.name = static_cast<std::uint32_t>(name);
    if (name > UINT32_MAX) return false;
  }
  for (Label& label : labels) {
    label.kind = static_cast<SlotKind>(std::min(cursor.u8(), static_cast<std::uint8_t>(SlotKind::kUnknown)));
  }
  for (Label& label : labels) label.flags = cursor.u8();
  for (Label& label : labels) label.scope = cursor.u8();
  for (Label& label : labels) label.extensions = cursor.u8();
  return !cursor.bad() && cursor.done();
}

bool read_others(std::string_view section, const std::vector<Label>& labels, std::uint32_t slots,
                 std::vector<OtherRow>& rows) {
  constexpr std::size_t kLeastBytes = 2;
  rows.clear();
  if (section.empty()) return true;
  Cursor cursor(section);
  const std::uint64_t count = cursor.count(kLeastBytes);
  rows.reserve(count);
  std::uint64_t next = 0, clock = 0, gpu_clock = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    OtherRow row{};
    const std::uint64_t gap = cursor.varint(), label = cursor.varint();
    if (cursor.bad() || gap >= slots || next + gap >= slots || label >= labels.size()) return false;
    row.slot = static_cast<std::uint32_t>(next + gap), row.label = static_cast<std::uint32_t>(label);
    next = row.slot + 1u;
    const Label& kind = labels[label];
    if (kind.kind == SlotKind::kNone) {
      rows.push_back(row);
      continue;
    }
    std::uint64_t time = cursor.svarint();
    if (kind.is_gpu()) {
      time = gpu_clock += time;
    } else if (!(kind.is_range() && (kind.flags & kBackendFlag) != 0)) {
      time = clock += time;
    }
    row.time = static_cast<std::int64_t>(time);
    if (!in_time(time)) return false;
    switch (kind.kind) {
      case SlotKind::kInstant:
        break;
      case SlotKind::kCounter:
        row.value = cursor.f64();
        break;
      case SlotKind::kAlloc:
        row.a = cursor.svarint(), row.b = cursor.varint();
        break;
      case SlotKind::kOutOfMemory:
        row.a = cursor.svarint();
        break;
      case SlotKind::kPatch:
        row.a = cursor.varint(), row.b = cursor.varint(), row.c = cursor.varint();
        break;
      case SlotKind::kThread:
        row.a = cursor.varint(), row.b = cursor.varint();
        break;
      default:
        if (const std::uint64_t length = cursor.varint(); length != 0) {
          const std::uint64_t end = time + unzigzag(length - 1);
          if (!in_time(end)) return false;
          row.ended = true, row.end = static_cast<std::int64_t>(end);
        }
    }
    rows.push_back(row);
  }
  return !cursor.bad() && cursor.done();
}

}  // namespace profd::scan
