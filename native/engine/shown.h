// What rows are to torch's tables; the bits of profd/query/roles.py.
#pragma once

#include <cstdint>

namespace profd {

enum Shown : std::uint8_t {
  kShown = 1,
  kCall = 2,
  kNestsInCalls = 4,
  kWork = 8,
  kMark = 16,
  kOpOfWork = 32,  // device work that was launched within it belongs to it
  kCosts = 128,    // device work that counts as time of the call it belongs to
};

}  // namespace profd
