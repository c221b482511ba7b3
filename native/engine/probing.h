// The slots of a hash table: open addressing with linear probing. What a table keeps in them, and how many at most, is
// the table's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace profd {

// Neighbouring numbers far apart: the finaliser of splitmix64.
inline std::uint64_t spread(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
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
