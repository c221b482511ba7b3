// Memory that a reader allocates in an arena before the target wants it: the kernel charges it to who touches it first,
// and the target may live in a tight cgroup. docs/arena.md.
#pragma once

#include <cstdint>

#include "encoder_arena.h"

namespace profd::encoder {

class Lead {
 public:
  // Allocates from the lowest chunk on until `ahead` bytes of what is allocated stand in free chunks, and the next of the
  // strings, and of more where the target has come near to the end of what there was; never more than `most` bytes since this object was made, whatever the target writes. Does nothing once the
  // target records no more. Whether `most` was in the way.
  bool keep(const Arena& arena, std::uint64_t ahead, std::uint64_t most);

  std::uint64_t bytes() const { return strings_ + std::uint64_t{chunks_} * arena::kChunkBytes; }

 private:
  bool keep_strings(const Arena& arena, std::uint64_t most);
  bool keep_chunks(const Arena& arena, std::uint64_t ahead, std::uint64_t most);

  std::uint64_t strings_ = 0;  // bytes of the area, from its begin, that are allocated
  std::uint32_t chunks_ = 0;   // that are allocated: the lowest
  unsigned doublings_ = 0;     // of `ahead`
  bool refused_ = false;       // by the kernel: the target touches its memory itself, as without a reader
};

}  // namespace profd::encoder
