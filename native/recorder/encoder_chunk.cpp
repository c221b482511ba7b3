#include "encoder_chunk.h"

#include <algorithm>

#include "clock.h"

namespace profd::encoder {
namespace {

constexpr std::uint32_t kMagic = 0x31434650;
constexpr std::uint16_t kVersion = 1;
constexpr std::uint8_t kFlagOpen = 1;
// With the rest of a body, which is less than half a MiB whatever the slots hold, a chunk stays below 1 MiB.
constexpr std::size_t kTextBytesMax = 512 * 1024;
constexpr int kAnchorAttempts = 16;

template <typename T>
void put(std::uint8_t* header, std::size_t at, T value) {
  std::memcpy(header + at, &value, sizeof value);
}

}  // namespace

std::uint32_t SentStrings::write(Bytes& body, const Arena& arena, std::uint64_t tail, std::uint32_t index,
                                 std::vector<std::uint32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::vector<std::uint32_t>& waiting = waiting_[index];
  waiting.clear();
  Texts texts(arena, tail);
  std::vector<std::uint32_t> lengths;
  std::size_t total = 0;
  for (const std::uint32_t id : ids) {
    if (id == arena::kNoName || id >= delivered_.size() || delivered_[id]) continue;
    const auto length = texts.length(id);
    if (!length) continue;
    waiting.push_back(id);
    lengths.push_back(*length);
    total += *length;
  }
  if (lengths.empty()) return 0;

  std::uint32_t cut = 0;
  if (total > kTextBytesMax) {
    const auto most = static_cast<std::uint32_t>(kTextBytesMax / lengths.size());
    for (auto& length : lengths) {
      if (length <= most) continue;
      length = most;
      ++cut;
    }
  }
  section_.clear();
  section_.varint(lengths.size());
  std::uint32_t before = 0;
  for (const std::uint32_t id : waiting) {
    section_.varint(id - before);
    before = id;
  }
  for (const auto length : lengths) section_.varint(length);
  for (std::size_t at = 0; at < lengths.size(); ++at) texts.append(waiting[at], lengths[at], section_);
  body.section(kStrings, section_);
  return cut;
}

void SentStrings::delivered(std::uint32_t index) {
  const auto found = waiting_.find(index);
  if (found == waiting_.end()) return;
  for (const std::uint32_t id : found->second) delivered_[id] = true;
  waiting_.erase(found);
}

void ChunkEncoder::begin(const Arena& arena) {
  strings_.begin(arena.header().strings_bytes);
  began_ = recorder::read_anchor(arena.header().clock, kAnchorAttempts);
}

bool ChunkEncoder::encode(const Arena& arena, std::uint32_t index, bool open) {
  if (!arena.copy(index, copy_)) return false;
  open_ = open;
  if (open) copy_.header.sealed = {};
  // Strings are published before the slots that name them, and those are already copied.
  const std::uint64_t tail = arena.strings_tail();
  const std::uint64_t strings_end = tail < 4 ? 1 : (tail - 4) / arena::kStringAlign + 1;
  const arena::Anchor own[2] = {began_, open ? recorder::read_anchor(arena.header().clock, kAnchorAttempts) : began_};
  const ChunkClock clock(arena.header().clock, copy_.header, arena.header().armed, arena.latest(), own);
  base_ = clock.base(), real_ = clock.real_at_base(), error_ns_ = clock.error_ns();

  slots_.encode(copy_, clock, strings_end);
  ids_ = slots_.strings();
  if (copy_.header.thread_name >= strings_end) copy_.header.thread_name = arena::kNoName;
  ids_.push_back(copy_.header.thread_name);
  body_.clear();
  const std::uint32_t cut = strings_.write(body_, arena, tail, index, ids_);
  slots_.write(body_, cut);
  return true;
}

void ChunkEncoder::write_header(std::uint8_t* out, const Arena& arena, std::uint8_t codec, std::size_t length) const {
  put(out, 0, kMagic);
  put(out, 4, kVersion);
  put(out, 6, codec);
  put(out, 7, open_ ? kFlagOpen : std::uint8_t{0});
  put(out, 8, static_cast<std::uint32_t>(kHeaderBytes + length));
  put(out, 12, std::uint32_t{0});
  put(out, 16, arena.header().incarnation);
  put(out, 24, copy_.header.stream);
  put(out, 28, copy_.header.tid);
  put(out, 32, copy_.header.sequence);
  put(out, 40, copy_.header.id_base);
  put(out, 48, base_);
  put(out, 56, real_);
  put(out, 64, error_ns_);
  put(out, 68, arena.header().pid);
  put(out, 72, slots_.events());
  put(out, 76, static_cast<std::uint32_t>(body_.size()));
  put(out, 80, copy_.count);
  put(out, 84, copy_.header.thread_name);
  put(out, 88, arena.header().epoch);
}

}  // namespace profd::encoder
