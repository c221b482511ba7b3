// What rows are to torch's tables, and the calls that only call one of their own name: a wrapper takes it over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arrays.h"

namespace profd {

// The bits of profd/query/roles.py.
enum Shown : std::uint8_t {
  kShown = 1,
  kCall = 2,
  kNestsInCalls = 4,
  kWork = 8,
  kMark = 16,
  kOpOfWork = 32,  // device work that was launched within it belongs to it
  kCosts = 128,    // device work that counts as time of the call it belongs to
};

struct CallTimes {
  const std::int64_t* lasting;
  std::int64_t* self;
  std::int64_t* launched;
};

// Rows that have their parent's name, in row order, and how many children each row has: more than two make no difference.
struct Namesakes {
  std::vector<std::int32_t> rows;
  std::vector<std::uint8_t> children;
};

// Marks as dropped every namesake that is an only child. The top of a chain of these takes over what is below the
// innermost and, as in torch, the kernels that one launched: what it launched itself is not counted.
template <typename Row>
void merge_wrappers(const Namesakes& namesakes, const Row* parent, CallTimes times, std::uint8_t* dropped) {
  std::vector<std::size_t> merged;
  constexpr std::uint8_t kDropped = 1, kWraps = 2;
  for (const std::int32_t row : namesakes.rows) {
    const auto i = static_cast<std::size_t>(row), above = static_cast<std::size_t>(parent[i]);
    if (namesakes.children[above] != 1) continue;
    dropped[i] |= kDropped, dropped[above] |= kWraps;
    merged.push_back(i);
  }
  for (const std::size_t i : merged) {
    if (dropped[i] & kWraps) continue;
    // An only child has no sibling to come from, so every chain is climbed once, and none goes round.
    auto top = static_cast<std::size_t>(parent[i]);
    while (dropped[top] & kDropped) top = static_cast<std::size_t>(parent[top]);
    times.self[top] = minus(times.lasting[top], minus(times.lasting[i], times.self[i]));
    times.launched[top] = times.launched[i];
    dropped[top] = 0;
  }
  for (const std::size_t i : merged) {
    times.launched[i] = 0;
    dropped[i] = 1;
  }
}

}  // namespace profd
