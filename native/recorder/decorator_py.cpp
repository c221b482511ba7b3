// What `@record_function("load")` leaves in place of a function: a C callable, 25 ns instead of a Python wrapper's 90.
// Coroutine functions and generators must stay what they are for inspect and asyncio: profclient.wrapping wraps those.
#include <cstddef>

#include "mirror.h"
#include "parts.h"
#include "span.h"
#include "types_py.h"

namespace profd::recorder {

namespace {

struct Recorded {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* function;
  PyObject* name;
  Detail* detail;
  PyObject* dict;
  PyObject* weak;
};

Recorded* as_recorded(PyObject* self) { return reinterpret_cast<Recorded*>(self); }

PyObject* call_recording(Recorded* recorded, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  Handle handle;
  begin_range(recorded->name, recorded->detail, &handle);
  PyObject* result = PyObject_Vectorcall(recorded->function, args, nargsf, keywords);
  end_range(handle, result ? 0 : arena::kFailed);
  return result;
}

PyObject* call_mirrored(Recorded* recorded, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  const char place = 0;  // its address tells this call from those within it
  mirror_begin(&place, recorded->name);
  PyObject* result = call_recording(recorded, args, nargsf, keywords);
  mirror_end(&place);
  return result;
}

PyObject* call_recorded(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  Recorded* recorded = as_recorded(self);
  if (mirrors()) return call_mirrored(recorded, args, nargsf, keywords);
  if (__builtin_expect(!(api.state.armed.load(std::memory_order_relaxed) & kRanges), 1)) {
    return PyObject_Vectorcall(recorded->function, args, nargsf, keywords);
  }
  return call_recording(recorded, args, nargsf, keywords);
}

PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  return instance && instance != Py_None ? PyMethod_New(self, instance) : Py_NewRef(self);
}

// Its own attributes first, then the function's: __code__, __annotations__, ...
PyObject* get_attribute(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(as_recorded(self)->function, name);
}

template <const char* const& Name>
PyObject* from_function(PyObject* self, void*) {
  return PyObject_GetAttrString(as_recorded(self)->function, Name);
}

const char* const kDocName = "__doc__";
const char* const kModuleName = "__module__";

PyObject* wrapped(PyObject* self, void*) { return Py_NewRef(as_recorded(self)->function); }

PyObject* reduce(PyObject* self, PyObject*) {  // pickled by name, as functions are
  return PyObject_GetAttrString(as_recorded(self)->function, "__qualname__");
}

PyObject* represent(PyObject* self) {
  return PyUnicode_FromFormat("<record_function(%R) of %R>", as_recorded(self)->name, as_recorded(self)->function);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Recorded* recorded = as_recorded(self);
  Py_VISIT(recorded->function);
  Py_VISIT(recorded->dict);
  if (recorded->detail) Py_VISIT(recorded->detail->values);
  return 0;
}

int clear(PyObject* self) {
  Recorded* recorded = as_recorded(self);
  Py_CLEAR(recorded->dict);
  if (recorded->detail) {
    Py_CLEAR(recorded->detail->keys);
    Py_CLEAR(recorded->detail->values);
  }
  return 0;  // the function stays until dealloc: a call may still come from a finalizer
}

void free_recorded(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Recorded* recorded = as_recorded(self);
  if (recorded->weak) PyObject_ClearWeakRefs(self);
  clear(self);
  Py_DECREF(recorded->function);
  Py_DECREF(recorded->name);
  free_detail(recorded->detail);
  PyObject_GC_Del(self);
}

PyMethodDef decorator_methods[] = {{"__reduce__", reduce, METH_NOARGS, "The function's qualified name."},
                         {nullptr, nullptr, 0, nullptr}};

PyGetSetDef fields[] = {{"__wrapped__", wrapped, nullptr, "The function.", nullptr},
                        {"__doc__", from_function<kDocName>, nullptr, nullptr, nullptr},
                        {"__module__", from_function<kModuleName>, nullptr, nullptr, nullptr},
                        {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject RecordedType = [] {
  PyTypeObject type = blank_type("profclient._recorder.RecordedFunction", sizeof(Recorded),
                                 Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR);
  type.tp_dealloc = free_recorded;
  type.tp_traverse = traverse;
  type.tp_clear = clear;
  type.tp_vectorcall_offset = offsetof(Recorded, call);
  type.tp_call = PyVectorcall_Call;
  type.tp_descr_get = bind;
  type.tp_getattro = get_attribute;
  type.tp_setattro = PyObject_GenericSetAttr;
  type.tp_dictoffset = offsetof(Recorded, dict);
  type.tp_weaklistoffset = offsetof(Recorded, weak);
  type.tp_repr = represent;
  type.tp_methods = decorator_methods;
  type.tp_getset = fields;
  return type;
}();

// Generator functions, coroutine functions and asynchronous generators: their call only makes the object.
bool runs_later(PyObject* function) {
  if (!PyFunction_Check(function)) return false;
  const PyCodeObject* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR);
}

PyObject* wrap_in_python(Span* span, PyObject* function) {
  PyObject* wrapping = PyImport_ImportModule("profclient.wrapping");
  if (!wrapping) return nullptr;
  PyObject* made = PyObject_CallMethod(wrapping, "wrap", "OO", span, function);
  Py_DECREF(wrapping);
  return made;
}

}  // namespace

PyObject* decorate(Span* span, PyObject* function) {
  if (!PyCallable_Check(function) || PyType_Check(function)) {
    PyErr_Format(PyExc_TypeError, "record_function(%R) decorates functions, not %R", span->name, function);
    return nullptr;
  }
  if (runs_later(function)) return wrap_in_python(span, function);
  Detail* detail = nullptr;
  if (span->detail && !(detail = copy_detail(span->detail))) return nullptr;
  Recorded* recorded = PyObject_GC_New(Recorded, &RecordedType);
  if (!recorded) {
    free_detail(detail);
    return nullptr;
  }
  recorded->call = call_recorded;
  recorded->function = Py_NewRef(function);
  recorded->name = Py_NewRef(span->name);
  recorded->detail = detail;
  recorded->dict = nullptr;
  recorded->weak = nullptr;
  PyObject_GC_Track(recorded);
  return reinterpret_cast<PyObject*>(recorded);
}

}  // namespace profd::recorder

int add_decorator(PyObject* module) {
  (void)module;
  return PyType_Ready(&profd::recorder::RecordedType);
}
