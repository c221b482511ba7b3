#include "seen_texts.h"

#include <algorithm>
#include <cstring>

#include "interner.h"

namespace profd::scan {

namespace {

// Clears the first ']' of eight bytes and what is behind it. False when there is none.
bool cut_at_bracket(std::uint64_t& word) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  const std::uint64_t zero = word ^ kOnes * ']';
  const std::uint64_t found = (zero - kOnes) & ~zero & kOnes * 0x80;
  if (!found) return false;
  word &= ((found & (0 - found)) >> 7) - 1;
  return true;
}

}  // namespace

SeenTexts::SeenTexts() : seed_(hash_seed()), sets_(kSets) {}

// By the first 16 bytes, or fewer where a bracket closes: what stands behind a short text is not part of it.
std::size_t SeenTexts::set_of(const char* p) const {
  std::array<std::uint64_t, 2> words;
  std::memcpy(words.data(), p, sizeof words);
  if (cut_at_bracket(words[0])) {
    words[1] = 0;
  } else {
    cut_at_bracket(words[1]);
  }
  return mix(words[0] ^ seed_, words[1] ^ seed_ >> 32) % kSets;
}

const SeenTexts::Seen* SeenTexts::find(const char* p, const char* end) const {
  const auto left = static_cast<std::size_t>(end - p);
  for (const Seen& seen : sets_[set_of(p)]) {
    if (seen.id == 0) break;
    if (seen.text.size() <= left && std::memcmp(p, seen.text.data(), seen.text.size()) == 0) return &seen;
  }
  return nullptr;
}

std::uint64_t SeenTexts::keep(std::string_view text) {
  if (text.size() > kBytesMax) return 0;
  Set& set = sets_[set_of(text.data())];
  std::rotate(set.begin(), set.end() - 1, set.end());
  set[0].text = text;
  return set[0].id = ++ids_;
}

}  // namespace profd::scan
