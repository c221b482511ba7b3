// Functions of a shared object by name, for hooks that run on the agent's thread: ctypes would enter sys.modules there,
// which the job may be iterating. No more of a foreign-function interface than our own libraries need: arguments are
// integers, addresses and buffers, results are integers, addresses and text. Calls run without the GIL.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "parts.h"

namespace {

constexpr Py_ssize_t kArgumentsMax = 5;

struct Library {
  PyObject_HEAD
  void* handle;
};

void* handle_of(PyObject* self) { return reinterpret_cast<Library*>(self)->handle; }

// What is passed, and the buffers that it lies in while the call runs.
struct Arguments {
  uintptr_t values[kArgumentsMax] = {};
  Py_buffer buffers[kArgumentsMax];
  int held = 0;
  ~Arguments() {
    while (held) PyBuffer_Release(&buffers[--held]);
  }

  bool take(PyObject* object, uintptr_t* value) {
    if (object == Py_None) return true;
    if (PyLong_Check(object)) {
      *value = static_cast<uintptr_t>(PyLong_AsUnsignedLongLong(object));
      return !PyErr_Occurred();
    }
    if (PyCapsule_CheckExact(object)) return (*value = pointer_in(object)) != 0;
    // A bytearray is written to; of bytes the callee only reads.
    const int flags = PyBytes_Check(object) ? PyBUF_SIMPLE : PyBUF_WRITABLE;
    if (PyObject_GetBuffer(object, &buffers[held], flags) < 0) return false;
    *value = reinterpret_cast<uintptr_t>(buffers[held++].buf);
    return true;
  }

  static uintptr_t pointer_in(PyObject* capsule) {
    return reinterpret_cast<uintptr_t>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  }
};

void* symbol(PyObject* self, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  void* found = text ? dlsym(handle_of(self), text) : nullptr;
  if (text && !found) PyErr_Format(PyExc_AttributeError, "the library has no %s", text);
  return found;
}

// As libffi does: an argument that the callee takes for an int is the low part of its register.
uintptr_t called(void* function, const uintptr_t* with) {
  using Function = uintptr_t(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
  return reinterpret_cast<Function*>(function)(with[0], with[1], with[2], with[3], with[4]);
}

bool call_into(PyObject* self, PyObject* const* given, Py_ssize_t count, uintptr_t* result) {
  if (count < 1 || count > 1 + kArgumentsMax) {
    PyErr_Format(PyExc_TypeError, "a name and at most %zd arguments", kArgumentsMax);
    return false;
  }
  void* function = symbol(self, given[0]);
  if (!function) return false;
  Arguments arguments;
  for (Py_ssize_t i = 1; i < count; ++i)
    if (!arguments.take(given[i], &arguments.values[i - 1])) return false;
  Py_BEGIN_ALLOW_THREADS;
  *result = called(function, arguments.values);
  Py_END_ALLOW_THREADS;
  return true;
}

PyObject* call(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  uintptr_t result;
  if (!call_into(self, given, count, &result)) return nullptr;
  return PyLong_FromLong(static_cast<int>(result));
}

PyObject* text(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  uintptr_t result;
  if (!call_into(self, given, count, &result)) return nullptr;
  const char* said = reinterpret_cast<const char*>(result);
  if (!said) Py_RETURN_NONE;
  return PyUnicode_DecodeUTF8(said, static_cast<Py_ssize_t>(std::strlen(said)), "replace");
}

PyObject* address(PyObject* self, PyObject* name) {
  void* found = symbol(self, name);
  return found ? PyLong_FromVoidPtr(found) : nullptr;
}

// It stays loaded: others may have its addresses.
PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* path;
  if (!PyArg_ParseTuple(args, "O&:Library", PyUnicode_FSConverter, &path)) return nullptr;
  void* handle;
  Py_BEGIN_ALLOW_THREADS;
  handle = dlopen(PyBytes_AS_STRING(path), RTLD_NOW | RTLD_LOCAL);
  Py_END_ALLOW_THREADS;
  Py_DECREF(path);
  if (!handle) {
    const char* why = dlerror();
    PyErr_SetString(PyExc_OSError, why ? why : "it cannot be loaded");
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self) reinterpret_cast<Library*>(self)->handle = handle;
  return self;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

template <typename F>
PyCFunction method(F* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef library_methods[] = {
    {"call", method(call), METH_FASTCALL, "call(name, /, *arguments)\n--\n\nWhat a function that returns an int does."},
    {"text", method(text), METH_FASTCALL, "text(name, /, *arguments)\n--\n\nWhat a function that returns text says."},
    {"address", address, METH_O, "address(name, /)\n--\n\nOf a function."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot library_slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_methods, library_methods},
                       {0, nullptr}};

PyType_Spec library_spec = {"profclient._recorder.Library", sizeof(Library), 0, Py_TPFLAGS_DEFAULT, library_slots};

}  // namespace

int add_library(PyObject* module) {
  PyObject* type = PyType_FromModuleAndSpec(module, &library_spec, nullptr);
  if (!type) return -1;
  const int added = PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type));
  Py_DECREF(type);
  return added;
}
