// The inputs of operators by the arrays they consist of: quicker to find than by all of their text.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "interner.h"

namespace profd::scan {

class RecentInputs {
 public:
  static constexpr std::size_t kEntries = 1024;

  // Of each array, in the order of the record: which one it is (Value::seen) and whose. Zeros behind the last.
  using Parts = std::array<std::uint64_t, 4>;

  // The code of the inputs that were kept under these parts; -1: none, or others have taken their place.
  std::int32_t code(const Parts& parts) const {
    const Entry& entry = entries_[place(parts)];
    return entry.parts == parts ? entry.code : -1;
  }

  void keep(const Parts& parts, std::int32_t code) { entries_[place(parts)] = {parts, code}; }

 private:
  struct Entry {
    Parts parts{};
    std::int32_t code = -1;
  };

  static std::size_t place(const Parts& parts) {
    return mix(mix(parts[0], parts[1] ^ 0xA0761D6478BD642Full) ^ parts[2], parts[3] ^ 0xE7037ED1A0B428DBull) % kEntries;
  }

  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

}  // namespace profd::scan
