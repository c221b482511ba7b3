// Ranges told to another tool as they begin and end, whether they are recorded or not: `emit_nvtx`. Everything here
// happens under the GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace profd::recorder {

struct Mirror {
  void (*push)(const char* name);  // null: nobody is told
  void (*pop)();                   // once set it stays: what was pushed is popped
};
[[gnu::visibility("hidden")]] extern Mirror mirror;

inline bool mirrors() { return __builtin_expect(mirror.push != nullptr, 0); }
inline bool mirrored() { return __builtin_expect(mirror.pop != nullptr, 0); }

// `owner` (not null) is told by its address when it begins and when it ends, on the same thread. One that ends before
// those within it ends with them: the other tool's ranges nest.
void mirror_begin(const void* owner, PyObject* name);
void mirror_end(const void* owner);

}  // namespace profd::recorder
