// Sums over each row and all below it, by a column of parents. Rows on a circle keep what lies below the circle.
#pragma once

#include <cstdint>
#include <vector>

#include "arrays.h"

namespace profd {

// Children after their parents: one pass from the last row.
inline void add_backwards(std::int64_t* total, const std::int64_t* parent, std::size_t n) {
  for (std::size_t i = n; i-- > 0;) {
    if (parent[i] >= 0) total[parent[i]] = plus(total[parent[i]], total[i]);
  }
}

// Equal starts put a parent after its children: rows are taken when all below them are, not in row order.
inline void add_from_leaves(std::int64_t* total, const std::int64_t* parent, std::size_t n) {
  constexpr std::int32_t kDone = -1;
  std::vector<std::int32_t> waiting_for(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    if (parent[i] >= 0) ++waiting_for[parent[i]];
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (waiting_for[i] != 0) continue;
    std::int64_t row = static_cast<std::int64_t>(i);
    while (waiting_for[row] == 0) {
      waiting_for[row] = kDone;
      const std::int64_t above = parent[row];
      if (above < 0) break;
      total[above] = plus(total[above], total[row]);
      --waiting_for[above];
      row = above;
    }
  }
}

// Adds to every row's `total` those of all rows below it. ValueError where a parent is beyond the last row.
inline void add_subtrees(std::int64_t* total, const std::int64_t* parent, std::size_t n) {
  bool in_order = true;
  for (std::size_t i = 0; i < n; ++i) {
    require(parent[i] < static_cast<std::int64_t>(n), "a parent is beyond the last row");
    in_order = in_order && parent[i] < static_cast<std::int64_t>(i);
  }
  (in_order ? add_backwards : add_from_leaves)(total, parent, n);
}

}  // namespace profd
