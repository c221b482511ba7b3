// record_function: one Python object per range, used by `with`, as a decorator, and to end on a future.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "extensions.h"
#include "recorder.h"

namespace profd::recorder {

// What a range carries beyond its name; most have none.
struct Detail {
  PyObject* keys = nullptr;    // tuple of str
  PyObject* values = nullptr;  // as many
  Kind kind = Kind::Range;
  uint8_t flags = 0;
  uint8_t scope = 0;
  uint64_t payload = 0;
  uint8_t* records = nullptr;  // extension records, PyMem
  size_t records_bytes = 0;
};

// `values` and `keys` of a vectorcall's keyword arguments. Null with MemoryError.
Detail* make_detail(PyObject* const* values, PyObject* keys);
Detail* copy_detail(const Detail* detail);
void free_detail(Detail* detail);

// Begins a range called `name`; handle says kNotRecorded while idle. Raises nothing.
void begin_range(PyObject* name, const Detail* detail, Handle* handle);

inline void end_range(const Handle& handle, uint8_t flags) {
  if (__builtin_expect(handle.place.hold == kNotRecorded, 0)) return;
  if (Thread* thread = current_thread()) end(api, thread, handle, flags);
}

struct Span {
  PyObject_HEAD
  vectorcallfunc call;  // () enters, (type, value, traceback) exits, (function) decorates
  PyObject* name;
  PyObject* exit;        // a function that leaves it; null but for those that are kept by name (span_py.cpp)
  Handle handle;
  Session id_session;    // in which the name's id is `id`
  uint32_t id;
  Handle* outer;         // of entries that were open when it was entered again
  uint32_t outer_room;
  uint32_t entered;      // times, without having been left
  Detail* detail;
};

[[gnu::visibility("hidden")]] extern PyTypeObject SpanType;

// A new one; takes over `detail`, which may be null. Null with MemoryError.
PyObject* make_span(PyObject* name, Detail* detail);

// Ranges that are made from here on look at the mirror (mirror.h), or no longer; none that was kept is given out again.
void forget_kept_spans();

// decorator_py.cpp: what `record_function(...)(function)` gives.
PyObject* decorate(Span* span, PyObject* function);

// ending_py.cpp: end_on(future), method of Span.
PyObject* end_on(PyObject* self, PyObject* future);

}  // namespace profd::recorder
