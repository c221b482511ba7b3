// One arena chunk to one wire chunk, and which strings the other side has.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "encoder_arena.h"
#include "encoder_slots.h"

namespace profd::encoder {

inline constexpr std::size_t kHeaderBytes = 96;

// Strings of an arena: sent with every chunk that uses them until one of those is acked.
class SentStrings {
 public:
  void begin(std::uint64_t strings_bytes) { delivered_.assign(strings_bytes / arena::kStringAlign + 1, false); }
  // The section for `ids` (in any order, with duplicates; they are sorted), to be delivered with chunk `index`.
  // Returns how many texts were cut.
  std::uint32_t write(Bytes& body, const Arena& arena, std::uint64_t tail, std::uint32_t index, std::vector<std::uint32_t>& ids);
  void delivered(std::uint32_t index);

 private:
  std::vector<bool> delivered_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> waiting_;  // by chunk
  Bytes section_;
};

class ChunkEncoder {
 public:
  // After arena.open().
  void begin(const Arena& arena);
  // False: the chunk's own header is beyond use. Needs no GIL.
  bool encode(const Arena& arena, std::uint32_t index, bool open);
  void delivered(std::uint32_t index) { strings_.delivered(index); }

  bool empty() const { return copy_.count == 0; }
  const Bytes& body() const { return body_; }
  // The header of what `encode` made, without its crc; `length` is that of the body as it travels.
  void write_header(std::uint8_t* out, const Arena& arena, std::uint8_t codec, std::size_t length) const;

 private:
  ChunkCopy copy_;
  SlotEncoder slots_;
  SentStrings strings_;
  std::vector<std::uint32_t> ids_;
  Bytes body_;
  arena::Anchor began_{};
  bool open_ = false;
  std::uint64_t base_ = 0;
  std::int64_t real_ = 0;
  std::uint32_t error_ns_ = 0;
};

}  // namespace profd::encoder
