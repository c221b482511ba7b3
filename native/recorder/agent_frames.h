// Messages of docs/agent-protocol.md: one packet each, a header and lines `key=value`. No Python, no heap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace profd::agent {

inline constexpr uint32_t kMagic = 0x31474150;  // "PAG1"
inline constexpr std::size_t kFrameBytesMax = 16 * 1024;
inline constexpr std::size_t kFieldsMax = 128;
inline constexpr std::size_t kValueBytesMax = 4096;  // of what we send; longer values are cut

enum class Type : uint16_t {
  Hello = 1,
  Welcome = 2,
  Refused = 3,
  Arm = 4,
  Armed = 5,
  Stop = 6,
  Stopped = 7,
  Release = 8,
  Status = 9,
  Failed = 10,
  Changed = 11,
  Limit = 12,
  Disarmed = 13,
  Recall = 14,
  Recalled = 15,
  Steps = 16,
  Request = 17,
};

struct FrameHeader {
  uint32_t magic;
  Type type;
  uint16_t reserved;
  uint64_t epoch;
};
static_assert(sizeof(FrameHeader) == 16);

// The lines of a body; they point into it.
class Fields {
 public:
  // False for anything but lines `key=value\n` with distinct keys and no control characters.
  bool parse(std::string_view body);

  std::string_view text(std::string_view key) const;  // empty where it is missing
  // Decimal digits; `otherwise` where the key is missing; nothing where it is no such number.
  std::optional<uint64_t> number(std::string_view key, uint64_t otherwise) const;

 private:
  struct Field {
    std::string_view key, value;
  };
  const Field* find(std::string_view key) const;

  std::array<Field, kFieldsMax> fields_;
  std::size_t count_ = 0;
};

// A received packet whose header is right.
struct Frame {
  Type type;
  uint64_t epoch;
  std::string_view body;
  Fields fields;
};

// False: no agent takes that. Into place: each copy of the fields is a page of a stack that stays.
bool parse_frame(const char* packet, std::size_t bytes, Frame* frame);

// Whether `key` is one of the items of `list`, which `separator` divides; `a:b` is the item `a`.
bool lists(std::string_view list, std::string_view key, char separator = ',');

// A packet to be sent. What does not fit is left out whole, line by line.
class Packet {
 public:
  void begin(Type type, uint64_t epoch);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, uint64_t value);
  void add_seconds(std::string_view key, uint64_t nanoseconds);  // 0.000001500
  void add_hex(std::string_view key, uint64_t value);
  void add_lines(std::string_view lines);  // `key=value\n` already

  const char* data() const { return bytes_.data(); }
  std::size_t size() const { return size_; }

 private:
  std::array<char, kFrameBytesMax> bytes_;
  std::size_t size_ = 0;
};

}  // namespace profd::agent
