// Arguments, files and last words of the small programs here.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace profd::sampler {

inline constexpr std::size_t kPageBytes = 4096;

// Print "Error: the sampler could not WHAT: WHY" and end with status 1. WHY is errno's text where it is null.
[[noreturn]] void fail(const char* what, const char* why = nullptr);

// A decimal number, which may be negative; anything else ends this process with a sentence.
long number(const char* word);

// Of a clock that only goes forward.
std::int64_t now_ns();

// An open file's text from here on, `most` bytes of it: how many. -1: it cannot be read.
ssize_t read_all(int file, char* into, std::size_t most);

// SIGINT has come, where it is caught: no other process's memory is there any more, so that whatever looks at it ends soon,
// however long it was led about.
inline volatile std::sig_atomic_t g_stop = 0;

// `bytes` of another process's memory, or fewer where they are not there; 0 for none.
std::size_t read_memory(pid_t process, std::uint64_t at, void* into, std::size_t bytes);

}  // namespace profd::sampler
