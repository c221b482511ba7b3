// Rows that start together: the longer encloses the shorter, equals stay in row order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace profd {

// Calls place(i) for every i of [0, n) in start order, longer first among equal starts.
// `start` ascends; end_of(i) is the end that counts. No allocation where no starts are equal.
template <typename EndOf, typename Place>
void for_each_longer_first(const std::int64_t* start, std::size_t n, EndOf end_of, Place place) {
  std::vector<std::size_t> tied;
  for (std::size_t i = 0; i < n;) {
    std::size_t next = i + 1;
    bool sorted = true;
    while (next < n && start[next] == start[i]) {
      sorted = sorted && end_of(next) <= end_of(next - 1);
      ++next;
    }
    if (sorted) {
      for (; i < next; ++i) place(i);
      continue;
    }
    tied.resize(next - i);
    std::iota(tied.begin(), tied.end(), i);
    std::stable_sort(tied.begin(), tied.end(),
                     [&](std::size_t a, std::size_t b) { return end_of(a) > end_of(b); });
    for (const std::size_t row : tied) place(row);
    i = next;
  }
}

}  // namespace profd
