// Reads another process's memory, many places at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>
#include <sys/uio.h>
#include <vector>

namespace profd::sampler {

inline constexpr std::size_t kBatchBytesMax = 64 << 20;
inline constexpr std::size_t kBatchFailuresMax = 256;  // of places; each costs a call

// Places that are read together: `add` them, `run`, ask what was there. A batch keeps its memory for the next one.
class Batch {
 public:
  explicit Batch(pid_t process) : process_(process) {}

  void clear();

  // The number of this place. One that makes the batch too large is not read.
  std::size_t add(std::uint64_t address, std::size_t bytes);

  // False: the process is gone, or may not be read any more (errno says; g_stop, where that is why).
  bool run();

  // What was there, whole; null where it could not be read.
  const char* at(std::size_t place) const { return read_[place] ? room_.data() + starts_[place] : nullptr; }
  std::size_t places() const { return there_.size(); }

 private:
  pid_t process_;
  std::size_t total_ = 0;
  std::vector<iovec> there_;
  std::vector<std::size_t> starts_;  // in room_
  std::vector<char> read_;
  std::vector<char> room_;
};

// A place and no more. False: it is not there.
bool read_place(pid_t process, std::uint64_t address, void* into, std::size_t bytes);

template <typename Value>
Value load(const char* from) {
  Value value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <typename Value>
bool read_value(pid_t process, std::uint64_t address, Value& into) {
  return read_place(process, address, &into, sizeof into);
}

}  // namespace profd::sampler
