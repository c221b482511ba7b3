// An arena as its reader sees it: memory that a hostile target may change at any moment. Whatever is looked at is
// copied first, and the copy is checked.
//
// Strings and chunks are read by pread(2): a look at a mapped page that nobody has written, or that the target has freed,
// would allocate it, on the account of the reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "arena.h"
#include "encoder_bytes.h"

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
  // Bytes of strings or chunks, from an offset in the arena. False: they cannot be had.
  bool read(std::uint64_t offset, void* to, std::size_t count) const;

 private:
  const arena::Header* live() const { return reinterpret_cast<const arena::Header*>(base_); }
  std::atomic<std::uint32_t>& state_word(std::uint32_t index) const;
  std::uint64_t chunk(std::uint32_t index) const;  // its offset

  std::uint8_t* base_ = nullptr;
  int fd_ = -1;
  std::size_t size_ = 0;
  arena::Header header_{};
};

// The texts below a tail, best asked for in the order of their ids. A text may change between two questions.
class Texts {
 public:
  Texts(const Arena& arena, std::uint64_t tail) : arena_(arena), tail_(tail) {}

  // Nothing: there is no such string.
  std::optional<std::uint32_t> length(std::uint32_t id);
  // The first `count` bytes of one, no more than its length was.
  void append(std::uint32_t id, std::uint32_t count, Bytes& to);

 private:
  bool bytes(std::uint64_t at, void* to, std::size_t count);

  const Arena& arena_;
  std::uint64_t tail_, from_ = 0;
  std::size_t held_ = 0;
  std::uint8_t window_[8192];  // of the area, from `from_`: names of one chunk mostly lie side by side
};

}  // namespace profd::encoder
