// The slots of a hash table: open addressing with linear probing. What a table keeps in them, and how many at most, is
// the table's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace profd {

// Of this process: whoever chooses ids and addresses cannot choose which of them meet in a table. By a hash that is
// known, 80 000 chosen ids took 1.6 s instead of 3 ms, and four times that for twice as many.
struct Secret {
  std::uint64_t offset, factor;

  Secret() {
    std::random_device random;
    const auto word = [&random] { return std::uint64_t{random()} << 32 | random(); };
    offset = word();
    factor = word() | 1;  // then what follows each other falls on different slots
  }
};
inline const Secret kSecret;

// A hash of a number, or of two: their product by secrets, folded.
inline std::uint64_t spread(std::uint64_t value, std::uint64_t other = 0) {
  const unsigned __int128 product = static_cast<unsigned __int128>(value ^ kSecret.offset) * (other ^ kSecret.factor);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// `Slot` has is_free(), same_key(other) and hash(), which its key alone decides; a new one is free.
template <typename Slot>
class Probing {
 public:
  explicit Probing(std::size_t least) : slots_(least) {}  // a power of two

  // The slot with the key of `like`; a free one, to be filled with it, if there is none.
  Slot& of(const Slot& like) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = like.hash() & mask;
    while (!slots_[at].is_free() && !slots_[at].same_key(like)) at = (at + 1) & mask;
    return slots_[at];
  }

  // At most half of the slots are taken by so many entries. Whether all have moved for it.
  bool make_room(std::size_t entries) {
    if (entries * 2 <= slots_.size()) return false;
    grow();
    return true;
  }

 private:
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (!slot.is_free()) of(slot) = slot;
    }
  }

  std::vector<Slot> slots_;
};

}  // namespace profd
