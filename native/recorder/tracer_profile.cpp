// CPython 3.11: a profile function in C, set in every thread. It is given frames, and all C functions too.
#include "tracer.h"
#include "tracer_hooked.h"

#if PY_VERSION_HEX < 0x030c0000

#define Py_BUILD_CORE  // what a frame object stands for: its code and its arguments, without making a dict of them
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

#include <cstring>
#include <new>

namespace profd::tracer {

Identity identity_of(PyFrameObject* frame, PyCodeObject*) { return reinterpret_cast<Identity>(frame); }

PyCodeObject* code_of(PyFrameObject* frame) { return frame->f_frame->f_code; }

PyObject* module_of(PyFrameObject* frame) { return Py_XNewRef(frame->f_frame->localsplus[0]); }

namespace {

// Threads are looked for again each time a thread has recorded this many events: a program that sets a profile function
// of its own and unsets it leaves a thread without one.
constexpr uint64_t kEventsBetweenWalks = 4096;

void called(PyFrameObject* frame) {
  const Session session = session_now();
  if (!session) return;
  Calls* calls = calls_at(session, true);
  if (!calls) return;
  if (__builtin_expect(calls->events % kEventsBetweenWalks < 2, 0) && calls->events > 1) {
    set_where_free(Which::All, nullptr);
  }
  open_call(calls, session, reinterpret_cast<Identity>(frame), code_of(frame), [frame] { return module_of(frame); });
}

// Ends are taken while nothing begins too (backed off): what was begun shall end. Null: not traced.
Calls* calls_at_end() {
  if (this_calls && tracer.session && this_calls->session == tracer.session) return this_calls;
  const Session session = session_now();
  return session ? calls_at(session, false) : nullptr;
}

void returned(PyFrameObject* frame, const PyObject* value) {
  if (Calls* calls = calls_at_end()) {
    close_call(calls, reinterpret_cast<Identity>(frame), value ? 0 : arena::kFailed);
  }
}

void c_called(PyFrameObject* frame, PyObject* callable) {
  const Session session = session_now();
  if (!session) return;
  if (Calls* calls = calls_at(session, false)) {
    open_c_call(calls, session, reinterpret_cast<Identity>(frame), callable);
  }
}

void c_returned(PyFrameObject* frame, uint8_t flags) {
  if (Calls* calls = calls_at_end()) close_c_call(calls, reinterpret_cast<Identity>(frame), flags);
}

// As a Python profile function, where a program puts back what sys.getprofile() gave it. Where another profile function
// hands on what it is told that one stays.
PyObject* hook(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  PyThreadState* thread = PyThreadState_Get();
  if (!is_ours(thread)) Py_RETURN_NONE;
  if (!tracer.session) {
    take_out_of(thread);
    Py_RETURN_NONE;
  }
  set_in(thread);
  const Session session = session_now();
  if (!session || count != 3) Py_RETURN_NONE;
  const bool returns = PyUnicode_Check(arguments[1]) && PyUnicode_CompareWithASCIIString(arguments[1], "return") == 0;
  first_event(session, returns);  // a frame that returns now is told to nobody else
  Py_RETURN_NONE;
}

PyObject* list_of(const std::vector<PyObject*>& found) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(found.size()));
  for (size_t at = 0; at < found.size(); ++at) {
    PyObject* profiler = found[at] ? found[at] : Py_NewRef(Py_None);
    if (list) {
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(at), profiler);
    } else {
      Py_DECREF(profiler);
    }
  }
  return list;
}

PyObject* list_is_held() {
  PyErr_SetString(PyExc_RuntimeError, "the interpreter's list of threads is held by somebody");
  return nullptr;
}

PyObject* tracer_profilers(PyObject*, PyObject*) {
  std::vector<PyObject*> found;
  try {
    if (!profilers_of_others(&found)) return list_is_held();
  } catch (const std::bad_alloc&) {
    for (PyObject* profiler : found) Py_XDECREF(profiler);
    return PyErr_NoMemory();
  }
  return list_of(found);
}

PyObject* tracer_install(PyObject*, PyObject* but_caller) {
  const int truth = PyObject_IsTrue(but_caller);
  if (truth < 0) return nullptr;
  try {
    if (!set_everywhere(truth ? PyThreadState_Get() : nullptr)) return list_is_held();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  Py_RETURN_NONE;
}

PyObject* tracer_remove(PyObject*, PyObject*) {
  size_t taken_over = 0;
  take_out_everywhere(&taken_over);  // in vain: threads take it out themselves, when nothing is traced any more
  return PyLong_FromSize_t(taken_over);
}

PyMethodDef hook_definition = {"tracer_hook", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(hook)),
                               METH_FASTCALL, "The profile function of a thread whose calls are recorded."};
PyMethodDef way_functions[] = {
    {"tracer_profilers", tracer_profilers, METH_NOARGS, nullptr},
    {"tracer_install", tracer_install, METH_O, nullptr},
    {"tracer_remove", tracer_remove, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int on_event(PyObject*, PyFrameObject* frame, int what, PyObject* arg) noexcept {
  if (__builtin_expect(!tracer.session, 0)) {
    take_out_of(PyThreadState_Get());
    return 0;
  }
  try {
    // A thread that Python starts is in the list before it runs, and its parent has not let go of the GIL since.
    if (__builtin_expect(newest_thread() != threads_seen, 0) && session_now()) set_where_free(Which::New, nullptr);
    if (what == PyTrace_CALL) {
      called(frame);
    } else if (what == PyTrace_RETURN) {
      returned(frame, arg);
    } else if (tracer.c_calls) {
      if (what == PyTrace_C_CALL) c_called(frame, arg);
      if (what == PyTrace_C_RETURN) c_returned(frame, 0);
      if (what == PyTrace_C_EXCEPTION) c_returned(frame, arena::kFailed);
    }
  } catch (const std::bad_alloc&) {
    recorder::api.lose(recorder::Lost::ForeignThread, 1);
  }
  return 0;
}

int add_way(PyObject* module) {
  if (!hook_object) hook_object = PyCFunction_New(&hook_definition, nullptr);  // a program may import us twice
  if (!hook_object || PyModule_AddObjectRef(module, "tracer_hook", hook_object) < 0) return -1;
  return PyModule_AddFunctions(module, way_functions);
}

}  // namespace profd::tracer

#endif
