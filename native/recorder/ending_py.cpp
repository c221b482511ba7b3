// Range.end_on(future): a callable that ends the range when the future calls it, on whatever thread that is.
#include <cstddef>

#include "parts.h"
#include "span.h"
#include "types_py.h"

namespace profd::recorder {

namespace {

struct Ending {
  PyObject_HEAD
  vectorcallfunc call;
  Handle handle;
};

PyObject* call_ending(PyObject* self, PyObject* const*, size_t, PyObject*) {
  Ending* ending = reinterpret_cast<Ending*>(self);
  end_range(ending->handle, arena::kAsync);
  ending->handle.place.hold = kNotRecorded;  // whoever calls twice ends it once
  Py_RETURN_NONE;
}

PyTypeObject EndingType = [] {
  PyTypeObject type = blank_type("profclient._recorder._Ending", sizeof(Ending),
                                 Py_TPFLAGS_HAVE_VECTORCALL);
  type.tp_vectorcall_offset = offsetof(Ending, call);
  type.tp_call = PyVectorcall_Call;
  return type;
}();

}  // namespace

PyObject* end_on(PyObject* self, PyObject* future) {
  Span* span = reinterpret_cast<Span*>(self);
  if (span->handle.place.hold == kNotRecorded) return Py_NewRef(future);
  Ending* ending = PyObject_New(Ending, &EndingType);
  if (!ending) return nullptr;
  ending->call = call_ending;
  ending->handle = span->handle;
  PyObject* done = PyObject_CallMethod(future, "add_done_callback", "O", ending);
  Py_DECREF(ending);
  if (!done) return nullptr;
  Py_DECREF(done);
  span->handle.place.hold = kNotRecorded;
  return Py_NewRef(future);
}

}  // namespace profd::recorder

int add_ending(PyObject* module) {
  (void)module;
  return PyType_Ready(&profd::recorder::EndingType);
}
