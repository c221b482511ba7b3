// The names that Python's threads have in the module threading.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

#include "layout.h"
#include "memory.h"

namespace profd::sampler {

inline constexpr std::size_t kEntriesMax = 1 << 16;  // of a dictionary: modules, threads, attributes

// Looks `threading._active` up, as the interpreter would.
class ThreadNames {
 public:
  ThreadNames(pid_t process, const Python& python) : process_(process), python_(python), batch_(process) {}

  // Names by threads' idents, escaped, of those that are `wanted`; without those that have none, or none yet.
  std::unordered_map<std::uint64_t, std::string> find(std::uint64_t interpreter,
                                                      const std::vector<std::uint64_t>& wanted);

 private:
  struct Entry {
    std::uint64_t hash, key, value;
  };

  bool read_keys(std::uint64_t keys, std::vector<Entry>& entries);
  bool read_dict(std::uint64_t dict, std::vector<Entry>& entries);
  std::size_t place_of(const std::vector<Entry>& entries, const char* key);
  std::uint64_t value_of(std::uint64_t dict, const char* key);
  std::uint64_t active_threads(std::uint64_t interpreter);
  std::uint64_t name_of(std::uint64_t thread);
  std::uint64_t values_of(std::uint64_t object, std::uint64_t flags, std::uint64_t& dict);

  pid_t process_;
  const Python& python_;
  Batch batch_;
  std::vector<Entry> entries_;
  std::uint64_t of_interpreter_ = 0, active_ = 0;  // threading._active, once found
  std::unordered_map<std::uint64_t, std::size_t> places_;  // of `_name` among the attributes of a type, by its keys
};

}  // namespace profd::sampler
