// Stable order of int64 keys.
#pragma once

#include <cstddef>
#include <cstdint>

namespace profd {

// Writes to `order` the permutation that sorts `keys` ascending, ties as they came.
// Linear: radix over the digits that differ; nothing but a scan when they are in order.
void stable_order(const std::int64_t* keys, std::size_t n, std::int64_t* order);

}  // namespace profd
