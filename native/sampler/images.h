// Where a process has an interpreter mapped.
#pragma once

#include <cstdint>
#include <sys/types.h>

#include "layout.h"

namespace profd::sampler {

inline constexpr int kImagesMax = 64;  // that are looked into

// Open /proc/PID/maps, and note which program it runs, while that may be opened.
void open_mappings(pid_t target);

// Find an interpreter whose layout is known, in what was opened. Null: found; else why there is none.
const char* find_mapped_python(pid_t target, Python& found);

}  // namespace profd::sampler
