// Keys of groups as numbers, in order of first use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arrays.h"
#include "probing.h"

namespace profd {

// Numbers keys in order of first use: by an array where there are few possible ones, else by hash.
class Numbering {
 public:
  explicit Numbering(std::uint64_t keys) : direct_(keys <= kDirect), slots_(direct_ ? 1 : 1 << 10) {
    if (direct_) number_.assign(keys, kNew);
  }

  // kNew is never returned; `next` is the number of a key that was not met before.
  std::int32_t of(std::uint64_t key, std::int32_t next) {
    if (direct_) {
      std::int32_t& number = number_[key];
      if (number == kNew) number = next;
      return number;
    }
    Slot& slot = slots_.of({key});
    if (!slot.is_free()) return slot.number;
    slot = {key, next};
    slots_.make_room(++used_);
    return next;
  }

 private:
  static constexpr std::uint64_t kDirect = 1 << 21;
  static constexpr std::int32_t kNew = -1;

  struct Slot {
    std::uint64_t key = 0;
    std::int32_t number = kNew;

    bool is_free() const { return number == kNew; }
    bool same_key(const Slot& other) const { return key == other.key; }
    std::uint64_t hash() const { return spread(key); }
  };

  bool direct_;
  std::vector<std::int32_t> number_;
  Probing<Slot> slots_;
  std::size_t used_ = 0;
};

// How many keys there may be in all. Codes of several columns make one number.
inline std::uint64_t key_space(const std::vector<std::uint64_t>& sizes) {
  std::uint64_t keys = 1;
  for (const std::uint64_t size : sizes) {
    require(size > 0 && !__builtin_mul_overflow(keys, size, &keys) && keys <= std::uint64_t{1} << 62,
            "there are too many possible groups for one number");
  }
  return keys;
}

}  // namespace profd
