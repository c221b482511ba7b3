// The way up from rows, by a column of parents.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "arrays.h"

namespace profd {

// The nearest row above one that has any of the bits of `wanted`. Most ways are short; on a long one every row that was
// passed knows the answer for all that pass through it later, so that ways are climbed once.
template <typename Row>
class Climb {
 public:
  Climb(const Row* parent, const std::uint8_t* among, std::size_t n, std::uint8_t wanted = 0xff)
      : parent_(parent), among_(among), n_(n), wanted_(wanted) {}

  std::int64_t from(std::int64_t row) {
    std::int64_t at = row;
    for (int step = 0; step < kShort; ++step) {
      at = above(at);
      if (at < 0 || is_wanted(at)) return std::max(at, kNoRow);
    }
    return remembered(row);
  }

 private:
  static constexpr int kShort = 16;
  static constexpr std::int64_t kUnknown = -2, kOnTheWay = -3;

  bool is_wanted(std::int64_t row) const { return among_[row] & wanted_; }

  std::int64_t above(std::int64_t row) const {
    require(parent_[row] < static_cast<std::int64_t>(n_), "a parent is beyond the last row");
    return parent_[row];
  }

  std::int64_t remembered(std::int64_t row) {
    if (known_.empty()) known_.assign(n_, kUnknown);
    path_.clear();
    std::int64_t answer = kNoRow;
    for (;;) {
      if (known_[row] == kOnTheWay) break;  // a circle: nothing is above
      if (known_[row] != kUnknown) {
        answer = known_[row];
        break;
      }
      path_.push_back(row);
      known_[row] = kOnTheWay;
      const std::int64_t next = above(row);
      if (next < 0) break;
      if (is_wanted(next)) {
        answer = next;
        break;
      }
      row = next;
    }
    for (const std::int64_t passed : path_) known_[passed] = answer;
    return answer;
  }

  const Row* parent_;
  const std::uint8_t* among_;
  std::size_t n_;
  std::uint8_t wanted_;
  std::vector<std::int64_t> known_, path_;
};

}  // namespace profd
