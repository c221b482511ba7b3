// Attributes of slots: sections 5 - 14 and 16 of a chunk.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "encoder_arena.h"
#include "encoder_bytes.h"

namespace profd::encoder {

// The sections' tags.
enum Tag : unsigned {
  kStrings = 1, kLabels, kNested, kOthers, kSequence, kForwardThread, kDebugHandle, kFlops, kModule, kStack, kMemory,
  kInputs, kArgs, kTensorIds, kLosses, kGpu,
};

// Byte strings of one chunk, each kept once. They point into the chunk's copy.
class Blobs {
 public:
  void clear();
  std::uint32_t place(std::string_view blob);
  void write(Bytes& out) const;  // how many, their lengths, their bytes

 private:
  static constexpr std::size_t kSlots = 4096;  // more than a chunk has slots
  std::array<std::uint32_t, kSlots> table_{};  // place + 1
  std::vector<std::uint32_t> used_;
  std::vector<std::string_view> blobs_;
};

// One attribute's slots and values, in the order of the slots.
struct Attribute {
  std::uint32_t count = 0, next = 0;
  Bytes slots, values;

  // Bytes to write the value to.
  Bytes& at(std::uint32_t slot) {
    slots.varint(slot - next);
    next = slot + 1, ++count;
    return values;
  }
  void clear() { count = next = 0, slots.clear(), values.clear(); }
};

class Attributes {
 public:
  void clear();

  // Of an op's payload.
  void payload(std::uint32_t slot, std::uint64_t payload);
  // The records in `extension`; false where one of them makes no sense (those before it are kept). String ids
  // that `module` and `stack` name are added to `strings` if they are below `strings_end`.
  bool extension(std::uint32_t slot, std::string_view extension, std::uint64_t strings_end,
                 std::vector<std::uint32_t>& strings);
  void write(Bytes& body);

 private:
  bool record(std::uint32_t slot, arena::Ext type, std::string_view bytes, std::uint64_t strings_end,
              std::vector<std::uint32_t>& strings);
  bool memory(std::uint32_t slot, std::string_view bytes);
  bool tensor_ids(std::uint32_t slot, std::string_view bytes);
  bool gpu(std::uint32_t slot, std::string_view bytes);
  Attribute& of(Tag tag) { return attributes_[tag - kSequence]; }

  std::array<Attribute, kGpu - kSequence + 1> attributes_;  // that of kLosses stays empty
  Blobs inputs_, args_;
  std::uint64_t last_sequence_ = 0, last_impl_ = 0, last_storage_ = 0;
  arena::GpuRecord last_gpu_{};
  Bytes section_;
};

// The ExternalTime record of a backend event; false: it has none.
bool external_time(std::string_view extension, std::uint64_t& start, std::uint64_t& end);

}  // namespace profd::encoder
