// An arena as its reader sees it: memory that a hostile target may change at any moment. Whatever is looked at is
// copied first, and the copy is checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arena.h"

namespace profd::encoder {

// A chunk copied out of the arena: checked as far as its numbers stay within it.
struct ChunkCopy {
  arena::ChunkHeader header;
  std::uint32_t count;  // slots, at most kSlotsPerChunk
  alignas(arena::Slot) std::uint8_t slots[arena::kSlotsPerChunk * sizeof(arena::Slot)];

  arena::Slot slot(std::uint32_t index) const {
    arena::Slot copy;
    std::memcpy(&copy, slots + index * sizeof copy, sizeof copy);
    return copy;
  }
};

class Arena {
 public:
  Arena() = default;
  ~Arena() { close(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // What is wrong with the descriptor, empty: nothing. `error` is errno where the system refused.
  std::string open(int fd, int& error);
  void close();
  bool is_open() const { return base_ != nullptr; }

  // Of the header as it was when it was opened: these never change.
  const arena::Header& header() const { return header_; }
  std::uint32_t chunk_count() const { return header_.chunk_count; }

  bool recording() const { return live()->recording.load(std::memory_order_acquire) != 0; }
  std::uint64_t recorded() const { return live()->recorded.load(std::memory_order_relaxed); }
  std::uint64_t lost(std::uint32_t reason) const { return live()->lost[reason].load(std::memory_order_relaxed); }
  arena::Anchor latest() const;

  arena::State state(std::uint32_t index) const;
  void free(std::uint32_t index);  // does nothing unless the chunk is sealed

  // (stream, sequence) of a chunk as they are now.
  std::pair<std::uint32_t, std::uint64_t> identity(std::uint32_t index) const;
  // False: the chunk's own header is beyond use.
  bool copy(std::uint32_t index, ChunkCopy& to) const;

  // Has this process allocate the memory of a part of the arena, where nobody has. False: the kernel gives none, or cannot
  // be asked (Linux before 5.14).
  bool allocate(std::uint64_t offset, std::uint64_t bytes) const;

  // Frees the memory of strings and chunks, whoever still maps it.
  void give_back() const;

  // Bytes of the string area that are published now, never more than there are.
  std::uint64_t strings_tail() const;
  // The text of an id below `tail`; it may change while it is looked at. Nothing: there is no such string.
  std::optional<std::string_view> text(std::uint32_t id, std::uint64_t tail) const;

 private:
  const arena::Header* live() const { return reinterpret_cast<const arena::Header*>(base_); }
  std::atomic<std::uint32_t>& state_word(std::uint32_t index) const;
  const std::uint8_t* chunk(std::uint32_t index) const;

  std::uint8_t* base_ = nullptr;
  std::size_t size_ = 0;
  arena::Header header_{};
};

}  // namespace profd::encoder
