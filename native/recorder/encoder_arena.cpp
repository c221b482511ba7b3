#include "encoder_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace profd::encoder {
namespace {

constexpr std::uint64_t kArenaBytesMax = std::uint64_t{16} << 30;
// Without them the target could shrink the file under us, and reading it would be SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Memory that somebody else writes: read once, whatever the compiler thinks.
template <typename T>
T load(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return value;
}

std::string wrong(const arena::Header& header, std::uint64_t size) {
  if (header.magic != arena::kMagic) return "it does not begin as an arena does";
  if (header.version != arena::kVersion) return "it is an arena of version " + std::to_string(header.version);
  if (header.header_bytes != arena::kPage || header.chunk_bytes != arena::kChunkBytes) return "its pages or chunks have another size";
  if (header.arena_bytes != size) return "its header states another size than it has";
  if (header.clock != arena::Clock::MonotonicNs && header.clock != arena::Clock::Tsc) return "its clock is unknown";
  if (header.strings_bytes > size) return "its strings reach beyond its end";
  const arena::Layout where = arena::layout(size, header.strings_bytes);
  const bool as_laid_out = header.states_offset == where.states_offset && header.strings_offset == where.strings_offset &&
                           header.chunks_offset == where.chunks_offset && header.chunk_count == where.chunk_count;
  return as_laid_out && where.chunk_count > 0 ? "" : "its parts lie where they cannot";
}

}  // namespace

std::string Arena::open(int fd, int& error) {
  error = 0;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return "it is no sealed memory file";
  struct stat status{};
  if (fstat(fd, &status) != 0) {
    error = errno;
    return "fstat failed";
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < arena::kPage + arena::kChunkBytes || size > kArenaBytesMax) return "it has " + std::to_string(size) + " bytes";
  void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    error = errno;
    return "mmap failed";
  }
  base_ = static_cast<std::uint8_t*>(at);
  size_ = size;
  std::memcpy(static_cast<void*>(&header_), base_, sizeof header_);
  std::string problem = wrong(header_, size);
  if (!problem.empty()) close();
  return problem;
}

void Arena::close() {
  if (base_ != nullptr) munmap(base_, size_);
  base_ = nullptr;
}

arena::Anchor Arena::latest() const {
  // A sequence lock, and a writer that may never let go of it: the last try is taken as it is, a rate is checked anyway.
  arena::Anchor found{};
  for (int tries = 0; tries < 100; ++tries) {
    const std::uint32_t before = live()->latest_turn.load(std::memory_order_acquire);
    found = load<arena::Anchor>(reinterpret_cast<const std::uint8_t*>(&live()->latest));
    std::atomic_thread_fence(std::memory_order_acquire);
    if ((before & 1) == 0 && live()->latest_turn.load(std::memory_order_relaxed) == before) break;
  }
  return found;
}

std::atomic<std::uint32_t>& Arena::state_word(std::uint32_t index) const {
  return reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + header_.states_offset)[index];
}

const std::uint8_t* Arena::chunk(std::uint32_t index) const {
  return base_ + header_.chunks_offset + std::uint64_t{index} * arena::kChunkBytes;
}

arena::State Arena::state(std::uint32_t index) const {
  return static_cast<arena::State>(state_word(index).load(std::memory_order_acquire));
}

void Arena::free(std::uint32_t index) {
  auto expected = static_cast<std::uint32_t>(arena::State::Sealed);
  if (!state_word(index).compare_exchange_strong(expected, static_cast<std::uint32_t>(arena::State::Free),
                                                 std::memory_order_acq_rel)) {
    return;
  }
  reinterpret_cast<arena::Header*>(base_)->freed.fetch_add(1, std::memory_order_release);
}

std::pair<std::uint32_t, std::uint64_t> Arena::identity(std::uint32_t index) const {
  const std::uint8_t* const at = chunk(index);
  return {load<std::uint32_t>(at + offsetof(arena::ChunkHeader, stream)),
          load<std::uint64_t>(at + offsetof(arena::ChunkHeader, sequence))};
}

bool Arena::copy(std::uint32_t index, ChunkCopy& to) const {
  const std::uint8_t* const at = chunk(index);
  const std::uint32_t count =
      reinterpret_cast<const arena::ChunkHeader*>(at)->count.load(std::memory_order_acquire);
  std::memcpy(static_cast<void*>(&to.header), at, sizeof to.header);
  if (count > arena::kSlotsPerChunk) return false;
  to.count = count;
  std::memcpy(to.slots, at + sizeof(arena::ChunkHeader), std::size_t{count} * sizeof(arena::Slot));
  return to.header.id_base != 0;
}

bool Arena::allocate(std::uint64_t offset, std::uint64_t bytes) const {
  return madvise(base_ + offset, bytes, MADV_POPULATE_WRITE) == 0;
}

void Arena::give_back() const { madvise(base_ + header_.strings_offset, size_ - header_.strings_offset, MADV_REMOVE); }

std::uint64_t Arena::strings_tail() const {
  return std::min(live()->strings_tail.load(std::memory_order_acquire), header_.strings_bytes);
}

std::optional<std::string_view> Arena::text(std::uint32_t id, std::uint64_t tail) const {
  const std::uint64_t at = std::uint64_t{id} * arena::kStringAlign;
  if (tail < sizeof(std::uint32_t) || at > tail - sizeof(std::uint32_t)) return std::nullopt;
  const std::uint8_t* const from = base_ + header_.strings_offset + at;
  const auto length = load<std::uint32_t>(from);
  if (length > arena::kStringBytesMax || length > tail - sizeof(std::uint32_t) - at) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(from) + sizeof(std::uint32_t), length);
}

}  // namespace profd::encoder
