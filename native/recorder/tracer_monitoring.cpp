// CPython 3.12 and later: callbacks of sys.monitoring, which client/profclient/tracer.py registers. They are told the
// code object, not the frame; functions of an interpreter are instrumented for all its threads at once.
#include "tracer.h"

#if PY_VERSION_HEX >= 0x030c0000

#include <new>

namespace profd::tracer {

Identity identity_of(PyFrameObject*, PyCodeObject* code) { return reinterpret_cast<Identity>(code); }

PyCodeObject* code_of(PyFrameObject* frame) {
  PyCodeObject* code = PyFrame_GetCode(frame);
  Py_DECREF(code);  // the frame keeps it
  return code;
}

PyObject* module_of(PyFrameObject* frame) {
  PyObject* self = PyFrame_GetVarString(frame, "self");
  if (!self) PyErr_Clear();
  return self;
}

namespace {

PyObject* module_called() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  if (!frame) return nullptr;
  PyObject* self = module_of(frame);
  Py_DECREF(frame);
  return self;
}

// Ends are taken while nothing begins too (backed off): what was begun shall end. Null: not traced.
Calls* calls_at_end() {
  if (this_calls && tracer.session && this_calls->session == tracer.session) return this_calls;
  const Session session = session_now();
  return session ? calls_at(session, false) : nullptr;
}

// True for what is told by its own PY_START.
bool is_python(PyObject* callable) {
  if (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  return PyFunction_Check(callable);
}

void started(PyObject* code) {
  const Session session = session_now();
  if (!session) return;
  if (Calls* calls = calls_at(session, true)) {
    open_call(calls, session, reinterpret_cast<Identity>(code), reinterpret_cast<PyCodeObject*>(code), module_called);
  }
}

void code_ended(PyObject* code, uint8_t flags) {
  if (Calls* calls = calls_at_end()) close_call(calls, reinterpret_cast<Identity>(code), flags);
}

void c_called(PyObject* code, PyObject* callable) {
  const Session session = session_now();
  if (!session || is_python(callable)) return;
  if (Calls* calls = calls_at(session, false)) open_c_call(calls, session, reinterpret_cast<Identity>(code), callable);
}

void c_ended(PyObject* code, PyObject* callable, uint8_t flags) {
  if (is_python(callable)) return;
  if (Calls* calls = calls_at_end()) close_c_call(calls, reinterpret_cast<Identity>(code), flags);
}

template <typename Work>
PyObject* told(Work work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    recorder::api.lose(recorder::Lost::ForeignThread, 1);
  }
  Py_RETURN_NONE;
}

bool is_code(PyObject* const* arguments, Py_ssize_t count, Py_ssize_t needed) {
  return count >= needed && PyCode_Check(arguments[0]);
}

PyObject* on_start(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return told([=] { if (is_code(arguments, count, 2)) started(arguments[0]); });
}
PyObject* on_return(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return told([=] { if (is_code(arguments, count, 2)) code_ended(arguments[0], 0); });
}
PyObject* on_unwind(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return told([=] { if (is_code(arguments, count, 2)) code_ended(arguments[0], arena::kFailed); });
}
PyObject* on_call(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return told([=] { if (is_code(arguments, count, 3)) c_called(arguments[0], arguments[2]); });
}
PyObject* on_c_return(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return told([=] { if (is_code(arguments, count, 3)) c_ended(arguments[0], arguments[2], 0); });
}
PyObject* on_c_raise(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return told([=] { if (is_code(arguments, count, 3)) c_ended(arguments[0], arguments[2], arena::kFailed); });
}

PyCFunction as_function(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef way_functions[] = {
    {"tracer_on_start", as_function(on_start), METH_FASTCALL, nullptr},
    {"tracer_on_return", as_function(on_return), METH_FASTCALL, nullptr},
    {"tracer_on_unwind", as_function(on_unwind), METH_FASTCALL, nullptr},
    {"tracer_on_call", as_function(on_call), METH_FASTCALL, nullptr},
    {"tracer_on_c_return", as_function(on_c_return), METH_FASTCALL, nullptr},
    {"tracer_on_c_raise", as_function(on_c_raise), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_way(PyObject* module) { return PyModule_AddFunctions(module, way_functions); }

}  // namespace profd::tracer

#endif
