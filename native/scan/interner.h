// Strings and their codes, for a whole trace. Codes are dense, in order of first use.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace profd::scan {

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Seeded per process, so that a file cannot be made to collide.
std::uint64_t hash_seed();

inline std::uint64_t hash_bytes(std::string_view s, std::uint64_t seed) {
  const char* p = s.data();
  std::size_t n = s.size();
  std::uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15ull);
  std::uint64_t word;
  for (; n >= 8; n -= 8, p += 8) {
    std::memcpy(&word, p, 8);
    h = mix(h ^ word, 0xA0761D6478BD642Full);
  }
  word = 0;
  if (n) std::memcpy(&word, p, n);
  return mix(h ^ word, 0xE7037ED1A0B428DBull);
}

struct SeededHash {
  std::uint64_t seed = hash_seed();

  std::size_t operator()(std::string_view text) const { return hash_bytes(text, seed); }
  std::size_t operator()(std::int64_t number) const { return mix(static_cast<std::uint64_t>(number) ^ seed, seed | 1); }
};

// Bytes that all dictionaries of a trace may take together.
struct Budget {
  std::size_t left;
};

class Interner {
 public:
  static constexpr std::int32_t kFull = -2;

  explicit Interner(Budget& budget) : budget_(&budget), seed_(hash_seed()), slots_(64) {}

  // The code of a string, added if it is new; kFull when the budget does not allow that.
  std::int32_t code(std::string_view value) {
    const std::uint64_t hash = hash_bytes(value, seed_);
    std::size_t at = hash & (slots_.size() - 1);
    for (; slots_[at].code >= 0; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].hash == hash && values_[static_cast<std::size_t>(slots_[at].code)] == value) return slots_[at].code;
    }
    return insert(value, hash, at);
  }

  std::size_t size() const { return values_.size(); }
  const std::string& operator[](std::int32_t code) const { return values_[static_cast<std::size_t>(code)]; }

  // Strings added since the last call.
  std::vector<std::string_view> take_new();

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::int32_t code = -1;
  };

  std::int32_t insert(std::string_view value, std::uint64_t hash, std::size_t at);
  void grow();

  Budget* budget_;
  std::uint64_t seed_;
  std::vector<Slot> slots_;
  std::vector<std::string> values_;
  std::size_t taken_ = 0;
};

}  // namespace profd::scan
