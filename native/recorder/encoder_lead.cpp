#include "encoder_lead.h"

#include <algorithm>

namespace profd::encoder {
namespace {

constexpr std::uint64_t kStringsAhead = 64 * 1024;
constexpr unsigned kDoublingsMax = 3;

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
  std::uint64_t free = 0;
  for (std::uint32_t index = 0; index < chunks_; ++index) free += arena.state(index) == arena::State::Free;
  const std::uint64_t before = (ahead << doublings_) / arena::kChunkBytes;
  if (chunks_ >= before && free < before / 4 && doublings_ < kDoublingsMax) ++doublings_;
  const std::uint64_t wanted = (ahead << doublings_) / arena::kChunkBytes;
  if (refused_) return false;
  const std::uint64_t allowed = most > bytes() ? (most - bytes()) / arena::kChunkBytes : 0;
  std::uint32_t end = chunks_;
  while (free < wanted && end < arena.chunk_count() && end - chunks_ < allowed) {
    free += arena.state(end++) == arena::State::Free;
  }
  if (end != chunks_) {
    const std::uint64_t begin = arena.header().chunks_offset + std::uint64_t{chunks_} * arena::kChunkBytes;
    refused_ = !arena.allocate(begin, std::uint64_t{end - chunks_} * arena::kChunkBytes);
    chunks_ = end;
  }
  return free < wanted && chunks_ < arena.chunk_count();
}

}  // namespace profd::encoder
