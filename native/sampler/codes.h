// Code objects of another process: what their functions are called, kept for as long as they are the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

#include "layout.h"
#include "memory.h"

namespace profd::sampler {

inline constexpr std::size_t kCodesMax = 1 << 16;   // that are known at once
inline constexpr std::size_t kTextsMax = 1 << 19;   // functions of a recording
inline constexpr std::size_t kTextBytesMax = 256 << 20;
inline constexpr int kNoText = -1;

// A code object that was read.
struct Code {
  int text = kNoText;             // of Texts; kNoText: it is no function, but something between two (a shim)
  std::size_t frame_bytes = 0;
  std::size_t code_bytes = 0;     // of its instructions
  unsigned checked = 0;           // the sample in which it was last seen to be the same
  char header[kCodeBytes] = {};   // as it was
  std::uint64_t hashes[2] = {};   // of its strings
  std::size_t place = 0, name_place = 0, file_place = 0;  // in the batch of the sample `asked`
  unsigned asked = 0;
};

// Functions, by what is written of them. They are numbered.
class Texts {
 public:
  // The number of the front of a record: `{"args":…,"name":"…","ph":"`. kNoText: there are too many.
  int number(std::string&& front);
  const std::string& front(int number) const { return *fronts_[static_cast<std::size_t>(number)]; }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<const std::string*> fronts_;
  std::size_t bytes_ = 0;
};

class Codes {
 public:
  Codes(pid_t process, const Python& python) : process_(process), python_(python) {}

  // Ask for what shows whether it is still the same.
  void ask(std::uint64_t address, unsigned sample, Batch& batch);

  // Keep what the answer shows to be the same.
  void check(std::uint64_t address, unsigned sample, const Batch& batch);

  // Known as it is in this sample; read if need be. Null: there is no code object.
  const Code* get(std::uint64_t address, unsigned sample);

  Texts& texts() { return texts_; }
  bool full() const { return full_; }

 private:
  bool read(std::uint64_t address, Code& into);
  bool is_same(const Code& code, const char* header) const;
  bool is_still(std::uint64_t address, const Code& code) const;
  bool is_numbered(const char* header) const;

  pid_t process_;
  const Python& python_;
  std::unordered_map<std::uint64_t, Code> known_;
  Texts texts_;
  bool full_ = false;
};

// The front of a record of a function, from texts that are escaped already.
std::string front_of(std::string_view file, std::int64_t line, std::string_view name);

}  // namespace profd::sampler
