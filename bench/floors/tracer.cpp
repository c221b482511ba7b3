// The least that a tracer of Python calls does: a C callback that stores 24 bytes for each begin and each end.
// CPython 3.11: a profile function; later ones: callbacks of sys.monitoring, registered by the bench.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <x86intrin.h>

namespace {

struct Event {
  uint64_t time;
  const void* code;
  uint64_t what;
};

Event* events = nullptr;
size_t used = 0, room = 0;

void store(const void* code, uint64_t what) {
  if (used == room) used = 0;
  events[used++] = {__rdtsc(), code, what};
}

PyObject* open_buffer(PyObject*, PyObject* count) {
  room = PyLong_AsSize_t(count);
  if (PyErr_Occurred()) return nullptr;
  std::free(events);
  events = static_cast<Event*>(std::malloc(room * sizeof(Event)));
  if (!events) return PyErr_NoMemory();
  std::memset(static_cast<void*>(events), 1, room * sizeof(Event));  // resident, as the arena is
  used = 0;
  Py_RETURN_NONE;
}

#if PY_VERSION_HEX < 0x030c0000

int on_event(PyObject*, PyFrameObject* frame, int what, PyObject*) {
  if (what > PyTrace_RETURN) return 0;
  PyCodeObject* code = PyFrame_GetCode(frame);
  store(code, static_cast<uint64_t>(what));
  Py_DECREF(code);
  return 0;
}

PyObject* start(PyObject*, PyObject*) {
  PyEval_SetProfile(on_event, nullptr);
  Py_RETURN_NONE;
}

PyObject* stop(PyObject*, PyObject*) {
  PyEval_SetProfile(nullptr, nullptr);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {{"open_buffer", open_buffer, METH_O, nullptr},
                           {"start", start, METH_NOARGS, nullptr},
                           {"stop", stop, METH_NOARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

#else

PyObject* on_begin(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  store(arguments[0], 0);
  Py_RETURN_NONE;
}

PyObject* on_end(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  store(arguments[0], 1);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"open_buffer", open_buffer, METH_O, nullptr},
    {"on_begin", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(on_begin)), METH_FASTCALL, nullptr},
    {"on_end", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(on_end)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

#endif

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "floor_tracer", nullptr, -1, functions,
                          nullptr,               nullptr,        nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_floor_tracer() { return PyModule_Create(&definition); }
