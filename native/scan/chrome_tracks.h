// Processes and threads by their ids, which are kept as the JSON they came as.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "interner.h"

namespace profd::scan {

class ChromeTracks {
 public:
  struct Place {
    std::int32_t process, thread;
  };
  struct Thread {
    std::int32_t process;
    std::string id;
  };

  ChromeTracks(std::size_t limit, Budget& budget) : limit_(limit), process_ids_(budget), thread_ids_(budget) {}

  // The place of an event; thread -1 when there are too many tracks. Empty: no id.
  Place find(std::string_view pid, std::string_view tid);

  // What find() added since the last call; numbers go on where they ended.
  std::vector<std::string_view> take_processes() { return process_ids_.take_new(); }
  std::vector<Thread> take_threads();

 private:
  struct Recent {
    std::string pid, tid;
    Place place{-1, -1};
  };

  std::size_t limit_;
  Interner process_ids_, thread_ids_;  // threads as "process number, blank, id"
  std::vector<Thread> fresh_;
  std::array<Recent, 64> recent_;
};

}  // namespace profd::scan
