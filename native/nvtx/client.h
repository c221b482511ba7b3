// A copy of NVTX of our own, for telling another tool of ranges: what its headers would be to a program, in small.
#pragma once

namespace profd::nvtx {

// Loads the tool that NVTX_INJECTION64_PATH names and hands it our functions; once. Null, or why there is no tool: a
// sentence that stays valid.
const char* open_tool();

// On this thread. Nothing while there is no tool.
void tell_push(const char* name);
void tell_pop();

}  // namespace profd::nvtx
