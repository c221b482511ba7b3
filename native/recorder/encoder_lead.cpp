#include "encoder_lead.h"

#include <algorithm>

namespace profd::encoder {
namespace {

constexpr std::uint64_t kStringsAhead = 64 * 1024;

}  // namespace

bool Lead::keep(const Arena& arena, std::uint64_t ahead, std::uint64_t most) {
  if (refused_ || !arena.recording()) return false;
  const bool strings_cut = keep_strings(arena, most);
  return keep_chunks(arena, ahead, most) || strings_cut;
}

bool Lead::keep_strings(const Arena& arena, std::uint64_t most) {
  const std::uint64_t wanted = arena::round_up(arena.strings_tail() + kStringsAhead, kStringsAhead);
  const std::uint64_t end = std::min(wanted, arena.header().strings_bytes);
  if (end <= strings_) return false;
  if (bytes() + (end - strings_) > most) return true;
  refused_ = !arena.allocate(arena.header().strings_offset + strings_, end - strings_);
  strings_ = end;
  return false;
}

bool Lead::keep_chunks(const Arena& arena, std::uint64_t ahead, std::uint64_t most) {
  const std::uint64_t wanted = ahead / arena::kChunkBytes;
  std::uint64_t free = 0;
  for (std::uint32_t index = 0; index < chunks_; ++index) free += arena.state(index) == arena::State::Free;
  if (refused_ || free >= wanted || chunks_ == arena.chunk_count()) return false;
  const std::uint64_t missing = std::min<std::uint64_t>(wanted - free, arena.chunk_count() - chunks_);
  const std::uint64_t allowed = most > bytes() ? (most - bytes()) / arena::kChunkBytes : 0;
  const auto more = static_cast<std::uint32_t>(std::min(missing, allowed));
  if (more != 0) {
    const std::uint64_t begin = arena.header().chunks_offset + std::uint64_t{chunks_} * arena::kChunkBytes;
    refused_ = !arena.allocate(begin, std::uint64_t{more} * arena::kChunkBytes);
    chunks_ += more;
  }
  return allowed < missing;
}

}  // namespace profd::encoder
