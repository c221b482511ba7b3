#include "sort.h"

#include <array>
#include <memory>

namespace profd {
namespace {

constexpr int kDigitBits = 11;
constexpr std::size_t kBuckets = std::size_t{1} << kDigitBits;
constexpr int kDigits = (64 + kDigitBits - 1) / kDigitBits;

struct Keyed {
  std::uint64_t key;
  std::int64_t row;
};

bool in_order(const std::int64_t* keys, std::size_t n) {
  for (std::size_t i = 1; i < n; ++i) {
    if (keys[i - 1] > keys[i]) return false;
  }
  return true;
}

}  // namespace

void stable_order(const std::int64_t* keys, std::size_t n, std::int64_t* order) {
  if (in_order(keys, n)) {
    for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<std::int64_t>(i);
    return;
  }
  std::int64_t least = keys[0];
  for (std::size_t i = 1; i < n; ++i) {
    if (keys[i] < least) least = keys[i];
  }
  // Relative to the least key, times of one trace have few digits.
  auto from = std::make_unique_for_overwrite<Keyed[]>(n);
  auto to = std::make_unique_for_overwrite<Keyed[]>(n);
  std::array<std::array<std::size_t, kBuckets>, kDigits> counts{};
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t key = static_cast<std::uint64_t>(keys[i]) - static_cast<std::uint64_t>(least);
    from[i] = {key, static_cast<std::int64_t>(i)};
    for (int digit = 0; digit < kDigits; ++digit) {
      ++counts[digit][(key >> (digit * kDigitBits)) & (kBuckets - 1)];
    }
  }
  for (int digit = 0; digit < kDigits; ++digit) {
    auto& count = counts[digit];
    const int shift = digit * kDigitBits;
    if (count[(from[0].key >> shift) & (kBuckets - 1)] == n) continue;  // all alike
    std::size_t place = 0;
    for (std::size_t& bucket : count) {
      const std::size_t size = bucket;
      bucket = place;
      place += size;
    }
    for (std::size_t i = 0; i < n; ++i) {
      to[count[(from[i].key >> shift) & (kBuckets - 1)]++] = from[i];
    }
    from.swap(to);
  }
  for (std::size_t i = 0; i < n; ++i) order[i] = from[i].row;
}

}  // namespace profd
