#include "interner.h"

#include <random>

namespace profd::scan {

std::uint64_t hash_seed() {
  static const std::uint64_t seed = std::random_device{}() | static_cast<std::uint64_t>(std::random_device{}()) << 32;
  return seed;
}

std::int32_t Interner::insert(std::string_view value, std::uint64_t hash, std::size_t at) {
  // What an entry takes beyond its bytes: the string here and in Python, its slot, the list and dict there.
  constexpr std::size_t kEntry = 160;
  const std::size_t cost = value.size() + kEntry;
  if (cost > budget_->left) return kFull;
  budget_->left -= cost;
  const auto code = static_cast<std::int32_t>(values_.size());
  values_.emplace_back(value);
  slots_[at] = {hash, code};
  if (values_.size() * 2 > slots_.size()) grow();
  return code;
}

void Interner::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.code < 0) continue;
    std::size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].code >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

std::vector<std::string_view> Interner::take_new() {
  std::vector<std::string_view> fresh(values_.begin() + static_cast<std::ptrdiff_t>(taken_), values_.end());
  taken_ = values_.size();
  return fresh;
}

}  // namespace profd::scan
