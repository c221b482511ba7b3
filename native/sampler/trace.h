// What was seen, as the records that `py-spy record --format chrometrace --threads` writes: daemon/profd/decode/samples.py.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

#include "codes.h"

namespace profd::sampler {

// Writes as it goes, so it holds what is open and no more.
class Trace {
 public:
  // `output`: a pipe.
  Trace(int output, pid_t process, Texts& texts) : output_(output), process_(process), texts_(texts) {}

  // The stack of a thread from now on, outermost first; `name` is the outermost record's. Times are us of any clock.
  void see(std::uint64_t native, std::uint64_t ident, const std::string& name, const std::vector<int>& stack,
           std::uint64_t now_us);

  // A thread has ended.
  void close(std::uint64_t native, std::uint64_t now_us);

  // All that is open ends; the last record has this time (decode/anchor.py). False: not all could be written.
  bool finish(std::uint64_t now_us);

  bool broken() const { return broken_; }

 private:
  struct Open {
    std::uint64_t ident = 0;
    std::string name;
    int name_text = kNoText;
    std::vector<int> stack;
  };

  void put(const Open& thread, int text, char phase, std::uint64_t now_us);
  void end_all(Open& thread, std::uint64_t now_us);
  void pop(Open& thread, std::uint64_t now_us);
  void flush();

  int output_;
  pid_t process_;
  Texts& texts_;
  std::unordered_map<std::uint64_t, Open> open_;
  Open last_;  // of those that have ended
  std::string waiting_ = "[";
  bool first_ = true, broken_ = false;
};

}  // namespace profd::sampler
