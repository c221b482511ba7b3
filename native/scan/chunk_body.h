// The body of an event chunk (docs/wire-format.md), read where it lies. Hostile: a cursor that has been asked for more
// than there is stays `bad` and gives zeros, so that callers check once, at the end.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace profd::scan {

class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool bad() const { return bad_; }
  bool done() const { return at_ == end_; }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  std::uint8_t u8() {
    if (at_ == end_) return fail();
    return static_cast<std::uint8_t>(*at_++);
  }
  std::uint64_t varint() {
    if (at_ != end_ && static_cast<std::int8_t>(*at_) >= 0) return static_cast<std::uint8_t>(*at_++);
    return long_varint();
  }
  std::uint64_t svarint() {
    const std::uint64_t value = varint();
    return (value >> 1) ^ (0 - (value & 1));
  }
  double f64() {
    double value = 0;
    const std::string_view raw = bytes(sizeof value);
    if (raw.size() == sizeof value) std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  std::string_view bytes(std::uint64_t count) {
    if (count > left()) {
      fail();
      return {};
    }
    const std::string_view found(at_, static_cast<std::size_t>(count));
    at_ += count;
    return found;
  }
  // How many of something follow, each of at least `least` bytes.
  std::uint64_t count(std::size_t least = 1) {
    const std::uint64_t found = varint();
    return found <= left() / least ? found : fail();
  }
  std::uint8_t fail() {
    bad_ = true;
    at_ = end_;
    return 0;
  }

 private:
  std::uint64_t long_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && at_ != end_; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(*at_++);
      if (shift == 63 && byte > 1) break;
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return fail();
  }

  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool bad_ = false;
};

enum Section : unsigned {
  kStringsSection = 1, kLabelsSection, kNestedSection, kOthersSection, kSequenceSection, kForwardThreadSection,
  kDebugHandleSection, kFlopsSection, kModuleSection, kStackSection, kMemorySection, kInputsSection, kArgsSection,
  kTensorIdsSection, kLossesSection, kGpuSection, kSections,
};

// Where each section lies; false: the body is not made of sections, or has one twice.
class Body {
 public:
  bool split(std::string_view body);
  bool has(unsigned tag) const { return present_ >> tag & 1; }
  std::string_view operator[](unsigned tag) const { return sections_[tag]; }
  bool has_attributes() const {
    constexpr std::uint32_t kAttributes = (1u << kLossesSection) - (1u << kSequenceSection) + (1u << kGpuSection);
    return (present_ & kAttributes) != 0;
  }

 private:
  std::array<std::string_view, kSections> sections_;
  std::uint32_t present_ = 0;
};

enum class SlotKind : std::uint8_t {
  kNone, kRange, kOp, kPyCall, kCCall, kModule, kInstant, kCounter, kAlloc, kOutOfMemory, kPatch, kThread,
  kApi, kKernel, kMemcpy, kMemset, kSync, kOverhead, kGraph, kUnknown,
};

enum SlotFlag : std::uint8_t { kAsyncFlag = 1, kOpenAtStartFlag = 2, kFailedFlag = 4, kBackendFlag = 8, kNamedFlag = 16, kTf32Flag = 32 };

struct Label {
  std::uint32_t name;
  SlotKind kind;
  std::uint8_t flags, scope, extensions;

  bool is_range() const { return (kind >= SlotKind::kRange && kind <= SlotKind::kModule) || kind == SlotKind::kUnknown; }
  bool is_gpu() const { return kind >= SlotKind::kApi && kind <= SlotKind::kGraph; }
  bool is_event() const { return kind != SlotKind::kNone && kind != SlotKind::kPatch && kind != SlotKind::kThread; }
};

bool read_labels(std::string_view section, std::vector<Label>& labels);

// A row of OTHERS. Its times are relative to the base time, also where the chunk has Unix times: that is one moment.
struct OtherRow {
  std::uint32_t slot, label;
  std::int64_t time = 0;
  bool ended = false;
  std::int64_t end = 0;            // of ranges with `ended`
  double value = 0;                // of counters
  std::uint64_t a = 0, b = 0, c = 0;  // bytes, address; stream, sequence, slot of a patch; tid, name of a thread
};

// Slots at or beyond `slots` and times beyond kTimeMax make it false.
bool read_others(std::string_view section, const std::vector<Label>& labels, std::uint32_t slots,
                 std::vector<OtherRow>& rows);

inline constexpr std::int64_t kTimeMax = std::int64_t{1} << 61;

inline bool in_time(std::uint64_t relative) {
  const auto time = static_cast<std::int64_t>(relative);
  return time > -kTimeMax && time < kTimeMax;
}

}  // namespace profd::scan
