// Kernel names: pointers into modules that the program may have unloaded by the time their records come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace profd::cupti {

// Reads texts of this process that may be gone. Of one thread, for as long as one buffer takes.
class Names {
 public:
  // Up to `most` bytes; empty where that memory cannot be read. Valid until the next call.
  std::string_view read(const char* text, size_t most);

 private:
  bool readable(uintptr_t page);

  uintptr_t last_ = 1;  // the page that was readable last; no page begins at 1
  std::unordered_map<uintptr_t, bool> pages_;
};

}  // namespace profd::cupti
