// Ids of Python strings. Under the GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "recorder.h"

namespace profd::recorder {

// Names used of late, by address: most programs have few. Each holds a reference, so an address found here is that str.
struct RecentName {
  PyObject* name = nullptr;
  uint32_t id = 0;
};
inline constexpr uint32_t kRecentNames = 128;
struct RecentNames {
  Session session = 0;
  RecentName entries[kRecentNames];
};
[[gnu::visibility("hidden")]] extern RecentNames recent_names;

inline uint32_t recent_slot(PyObject* name) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(name);
  return static_cast<uint32_t>(address >> 4 ^ address >> 11) % kRecentNames;
}

// The id of a str that was used of late in this session, or kNoName. What `name` is need not be known.
inline uint32_t recent_id(Session session, PyObject* name) {
  const RecentName& entry = recent_names.entries[recent_slot(name)];
  return __builtin_expect(entry.name == name && recent_names.session == session, 1) ? entry.id : arena::kNoName;
}

// The id of `name` in this session. Interned strings (literals) are found by their address, and kept alive until the
// next session; others by their bytes. Raises nothing.
uint32_t name_id(Thread* thread, Session session, PyObject* name);

// The UTF-8 of a str, also where it holds surrogates; null with no exception set where even that fails. `*owner` is what
// keeps it alive and must be released; it may be null.
const char* utf8_of(PyObject* text, Py_ssize_t* bytes, PyObject** owner);

}  // namespace profd::recorder
