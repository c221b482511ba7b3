// Symbols of a library or a program as it lies in another process's memory.
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace profd::sampler {

// What the dynamic linker would look at. No file is opened, so it is what runs, whatever has become of its file.
class Image {
 public:
  // False: there is no image at this address, or none of 64 bits with a table of hashed names.
  bool open(pid_t process, std::uint64_t start);

  // The address of a symbol; 0: there is none.
  std::uint64_t find(const char* name) const;

 private:
  bool read_dynamic(std::uint64_t at, std::uint64_t bytes);
  std::uint64_t placed(std::uint64_t address) const { return address < bias_ ? address + bias_ : address; }

  pid_t process_ = 0;
  std::uint64_t bias_ = 0, symbols_ = 0, texts_ = 0, hashes_ = 0;
};

}  // namespace profd::sampler
