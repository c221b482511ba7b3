// Ids of Python strings. Under the GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "recorder.h"

namespace profd::recorder {

// The id of `name` in this session. Interned strings (literals) are found by their address, and kept alive until the
// next session; others by their bytes. Raises nothing.
uint32_t name_id(Thread* thread, Session session, PyObject* name);

// The UTF-8 of a str, also where it holds surrogates; null with no exception set where even that fails. `*owner` is what
// keeps it alive and must be released; it may be null.
const char* utf8_of(PyObject* text, Py_ssize_t* bytes, PyObject** owner);

}  // namespace profd::recorder
