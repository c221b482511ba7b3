// CPython 3.11: a profile function in C, set in every thread. It is given frames, and all C functions too.
#include "tracer.h"

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

PyObject* hook_object = nullptr;  // what sys.getprofile() says while we are set, and threading.setprofile() takes
uint64_t displaced = 0;           // threads where somebody set another profile function meanwhile

// Threads are looked for again each time a thread has recorded this many events: C code makes threads of its own,
// which no hook of Python's announces.
constexpr uint64_t kEventsBetweenWalks = 4096;

int on_event(PyObject*, PyFrameObject* frame, int what, PyObject* arg) noexcept;

bool is_ours(const PyThreadState* thread) {
  return thread->c_profilefunc == on_event || (hook_object && thread->c_profileobj == hook_object);
}

template <typename Visit>
void each_thread(Visit visit) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  for (PyThreadState* at = PyInterpreterState_ThreadHead(interpreter); at; at = PyThreadState_Next(at)) visit(at);
}

// False: an audit hook of the program forbids it.
bool set_profile(PyThreadState* thread, Py_tracefunc function, PyObject* object) {
  if (_PyEval_SetProfile(thread, function, object) == 0) return true;
  PyErr_Clear();
  return false;
}

// The number of threads where that was forbidden. While an audit hook looks at it others run: they may end the tracer.
size_t set_where_free(const PyThreadState* except, bool again) {
  size_t forbidden = 0;
  const Session session = tracer.session;
  each_thread([&](PyThreadState* thread) {
    if (thread == except || thread->c_profilefunc || tracer.session != session) return;
    if (!set_profile(thread, on_event, hook_object)) {
      ++forbidden;
      return;
    }
    if (tracer.session != session) {
      set_profile(thread, nullptr, nullptr);
      return;
    }
    const uint64_t id = PyThreadState_GetID(thread);
    const bool is_new = tracer.started.insert_or_assign(id, recorder::ticks(recorder::api)).second;
    if (again && !is_new) interrupted(id);  // the program had set a profile function of its own, and unset it
  });
  return forbidden;
}

void called(PyFrameObject* frame) {
  const Session session = session_now();
  if (!session) return;
  Calls* calls = calls_at(session, true);
  if (!calls) return;
  if (__builtin_expect(calls->events % kEventsBetweenWalks < 2, 0)) {
    set_where_free(nullptr, true);
    if (tracer.session != session) return;
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

int on_event(PyObject*, PyFrameObject* frame, int what, PyObject* arg) noexcept {
  try {
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

// As a Python profile function: in threads that threading starts, and where a program puts back what sys.getprofile()
// gave it. Takes itself out where nothing is traced any more.
PyObject* hook(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  PyThreadState* thread = PyThreadState_Get();
  const Session session = session_now();
  if (!session) {
    if (is_ours(thread)) set_profile(thread, nullptr, nullptr);
    Py_RETURN_NONE;
  }
  if (count != 3 || !set_profile(thread, on_event, hook_object)) Py_RETURN_NONE;
  const bool returns = PyUnicode_Check(arguments[1]) && PyUnicode_CompareWithASCIIString(arguments[1], "return") == 0;
  first_event(session, returns);  // a frame that returns now is told to nobody else
  Py_RETURN_NONE;
}

PyObject* tracer_profilers(PyObject*, PyObject*) {
  PyObject* found = PyList_New(0);
  if (!found) return nullptr;
  bool failed = false;
  each_thread([&](PyThreadState* thread) {
    if (!thread->c_profilefunc || is_ours(thread)) return;
    failed |= PyList_Append(found, thread->c_profileobj ? thread->c_profileobj : Py_None) < 0;
  });
  if (failed) Py_CLEAR(found);
  return found;
}

PyObject* tracer_install(PyObject*, PyObject* but_caller) {
  displaced = 0;
  return PyLong_FromSize_t(set_where_free(PyObject_IsTrue(but_caller) ? PyThreadState_Get() : nullptr, false));
}

PyObject* tracer_remove(PyObject*, PyObject*) {
  size_t left = 0;
  each_thread([&](PyThreadState* thread) {
    if (is_ours(thread)) {
      left += !set_profile(thread, nullptr, nullptr);
    } else if (thread->c_profilefunc) {
      ++displaced;
    }
  });
  return Py_BuildValue("nK", static_cast<Py_ssize_t>(left), static_cast<unsigned long long>(displaced));
}

PyMethodDef hook_definition = {"tracer_hook", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(hook)),
                               METH_FASTCALL, "The profile function of a thread whose calls are recorded."};
PyMethodDef functions[] = {
    {"tracer_profilers", tracer_profilers, METH_NOARGS, nullptr},
    {"tracer_install", tracer_install, METH_O, nullptr},
    {"tracer_remove", tracer_remove, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_way(PyObject* module) {
  hook_object = PyCFunction_New(&hook_definition, nullptr);
  if (!hook_object || PyModule_AddObjectRef(module, "tracer_hook", hook_object) < 0) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace profd::tracer

#endif
