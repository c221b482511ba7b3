#include "encoder_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
  fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (fd_ < 0) {
    error = errno;
    close();
    return "no descriptor is left";
  }
  std::memcpy(static_cast<void*>(&header_), base_, sizeof header_);
  std::string problem = wrong(header_, size);
  if (!problem.empty()) close();
  return problem;
}

void Arena::close() {
  if (base_ != nullptr) munmap(base_, size_);
  if (fd_ >= 0) ::close(fd_);
  base_ = nullptr;
  fd_ = -1;
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

bool Arena::read(std::uint64_t offset, void* to, std::size_t count) const {
  return pread(fd_, to, count, static_cast<off_t>(offset)) == static_cast<ssize_t>(count);
}

std::uint64_t Arena::chunk(std::uint32_t index) const {
  return header_.chunks_offset + std::uint64_t{index} * arena::kChunkBytes;
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
  arena::ChunkHeader header{};
  read(chunk(index), &header, offsetof(arena::ChunkHeader, tid));
  return {header.stream, header.sequence};
}

bool Arena::copy(std::uint32_t index, ChunkCopy& to) const {
  if (!read(chunk(index), &to.header, sizeof to.header)) return false;
  std::atomic_thread_fence(std::memory_order_acquire);  // slots were written before they were counted
  to.count = to.header.count.load(std::memory_order_relaxed);
  if (to.count > arena::kSlotsPerChunk) return false;
  if (!read(chunk(index) + sizeof to.header, to.slots, std::size_t{to.count} * sizeof(arena::Slot))) return false;
  return to.header.id_base != 0;
}

bool Arena::allocate(std::uint64_t offset, std::uint64_t bytes) const {
  return madvise(base_ + offset, bytes, MADV_POPULATE_WRITE) == 0;
}

void Arena::give_back() const { madvise(base_ + header_.strings_offset, size_ - header_.strings_offset, MADV_REMOVE); }

std::uint64_t Arena::strings_tail() const {
  return std::min(live()->strings_tail.load(std::memory_order_acquire), header_.strings_bytes);
}

std::optional<std::uint32_t> Texts::length(std::uint32_t id) {
  const std::uint64_t at = std::uint64_t{id} * arena::kStringAlign;
  if (tail_ < sizeof(std::uint32_t) || at > tail_ - sizeof(std::uint32_t)) return std::nullopt;
  std::uint32_t length = 0;
  if (!bytes(at, &length, sizeof length) || length > arena::kStringBytesMax || length > tail_ - sizeof length - at) return std::nullopt;
  return length;
}

void Texts::append(std::uint32_t id, std::uint32_t count, Bytes& to) {
  std::uint8_t* const room = to.room(count);
  // It had a length that lies below the tail: what is not to be read is nothing.
  if (!bytes(std::uint64_t{id} * arena::kStringAlign + sizeof(std::uint32_t), room, count)) std::memset(room, 0, count);
  to.end(room + count);
}

bool Texts::bytes(std::uint64_t at, void* to, std::size_t count) {
  if (at < from_ || at + count > from_ + held_) {
    from_ = at;
    held_ = static_cast<std::size_t>(std::min<std::uint64_t>(sizeof window_, tail_ - at));
    if (count > held_) {
      held_ = 0;
      return arena_.read(arena_.header().strings_offset + at, to, count);
    }
    if (!arena_.read(arena_.header().strings_offset + at, window_, held_)) {
      held_ = 0;
      return false;
    }
  }
  std::memcpy(to, window_ + (at - from_), count);
  return true;
}

}  // namespace profd::encoder
