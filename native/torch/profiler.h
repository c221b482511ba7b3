// torch's own profiler, driven from C++: stopping and exporting hold no GIL, so the job runs on meanwhile.
#pragma once

#include <string>

namespace profd::torch_observer {

// In all-thread mode. With the GIL held from the check that nobody else's profiler runs until this has returned.
void start_profiler(bool shapes, bool flops, bool devices);

// Stops, writes Chrome JSON to `path` and frees the result. Without the GIL.
void stop_profiler(const std::string& path);

}  // namespace profd::torch_observer
