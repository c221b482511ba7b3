// A sampler that reads the stacks of Python threads itself, where it knows how: docs/decisions/0047-stacks.md.
#pragma once

namespace profd::sampler {

inline constexpr int kStacksArguments = 3;  // OUTPUT RATE SECONDS, behind those of `confine`
inline constexpr int kUnknownStatus = 3;    // the target has no interpreter that it knows

// Say why, and end with that status.
[[noreturn]] void refuse_unknown(const char* why);

// Sample RATE times a second, which need not be whole, for SECONDS at most, and write what py-spy would to the pipe
// OUTPUT: once in each period, at any moment in it, so that nothing keeps step with it. SIGINT ends it, and what it has
// is written. Prints py-spy's sentences: when it begins, that it is late, how many samples there were.
//
// The target is never stopped. A stack that changes while it is read is read again, and dropped and counted in the end.
[[noreturn]] void sample_stacks(char** arguments);

}  // namespace profd::sampler
