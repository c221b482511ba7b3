// Strings of another process as they stand in JSON.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

#include "layout.h"
#include "memory.h"

namespace profd::sampler {

inline constexpr std::size_t kCharactersMax = 4096;  // of a string; the rest of it is left out
inline constexpr std::size_t kStringBytes = 80;      // of a str object, what is read first

// What `begin`, the first kStringBytes of the str at this address, stands for: escaped, in UTF-8. Half a character (a
// lone surrogate) becomes a question mark, as when a trace is stored. False: it is none.
bool read_text(pid_t process, const Layout& layout, std::uint64_t address, const char* begin, std::string& into);

// The same of a string of which nothing is known yet.
bool read_text(pid_t process, const Layout& layout, std::uint64_t address, std::string& into);

// Add a number.
void put_number(std::string& into, std::uint64_t number);

}  // namespace profd::sampler
