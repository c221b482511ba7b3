// What starts and stops the tracer, and calls that need more than a slot: nn.Module, C functions.
#include "tracer.h"

#include <time.h>

#include <cstring>
#include <new>

namespace profd::tracer {

Tracer tracer;

namespace {

// The extension of a Module event: record {type, 0, length, string id}.
struct PathExtension {
  uint8_t type = static_cast<uint8_t>(arena::Ext::Module);
  uint8_t zero = 0;
  uint16_t length = sizeof(uint32_t);
  uint32_t path;
};


bool append_prefixes(PyObject* sequence, std::vector<std::string>* prefixes) {
  PyObject* items = PySequence_Fast(sequence, "prefixes: a sequence of str");
  if (!items) return false;
  bool good = true;
  for (Py_ssize_t at = 0; good && at < PySequence_Fast_GET_SIZE(items); ++at) {
    Py_ssize_t bytes = 0;
    const char* text = PyUnicode_AsUTF8AndSize(PySequence_Fast_GET_ITEM(items, at), &bytes);
    good = text != nullptr;
    if (good) prefixes->emplace_back(text, static_cast<size_t>(bytes));
  }
  Py_DECREF(items);
  return good;
}

int64_t realtime_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void finish() {
  tracer.session = 0;
  tracer.started.clear();
  unmute_this_thread();
  tracer.names.close();
  tracer.calls.close();
  forget_roots();
  tracer.modules.close();
}

PyObject* tracer_begin(PyObject*, PyObject* arguments) {
  PyObject* sequence;
  int c_calls, modules, but_caller;
  if (!PyArg_ParseTuple(arguments, "Oppp", &sequence, &c_calls, &modules, &but_caller)) return nullptr;
  const Session session = recorder::session_of(recorder::api, recorder::kPython);
  if (!session) {
    PyErr_SetString(PyExc_RuntimeError, "no capture records Python calls here now");
    return nullptr;
  }
  finish();
  try {
    std::vector<std::string> prefixes;
    if (!append_prefixes(sequence, &prefixes)) return nullptr;
    tracer.names.open(session, std::move(prefixes));
    tracer.calls.open(session);
    tracer.modules.open(session, modules);
  } catch (const std::bad_alloc&) {
    finish();
    return PyErr_NoMemory();
  }
  tracer.since = recorder::ticks(recorder::api);
#if PY_VERSION_HEX >= 0x030c0000  // before, each thread has a time of its own
  tracer.newest = PyThreadState_GetID(PyInterpreterState_ThreadHead(PyInterpreterState_Get()));
#endif
  tracer.c_calls = c_calls;
  count_from(session);
  if (but_caller) mute_this_thread();
  tracer.session = session;
  return PyLong_FromLongLong(realtime_ns());
}

PyObject* tracer_end(PyObject*, PyObject*) {
  finish();
  Py_RETURN_NONE;
}

PyObject* tracer_c_calls(PyObject*, PyObject* wanted) {
  const int truth = PyObject_IsTrue(wanted);
  if (truth < 0) return nullptr;
  tracer.c_calls = truth != 0;
  Py_RETURN_NONE;
}

PyObject* tracer_pause(PyObject*, PyObject*) {
  pause_this_thread();
  Py_RETURN_NONE;
}

PyObject* tracer_resume(PyObject*, PyObject*) {
  try {
    resume_this_thread();
  } catch (const std::bad_alloc&) {  // then new frames begin when recording did
  }
  Py_RETURN_NONE;
}

PyObject* tracer_statistics(PyObject*, PyObject*) {
  const Counts found = counts();
  return Py_BuildValue("{s:K,s:K,s:n,s:n}", "events", static_cast<unsigned long long>(found.events), "resynchronised",
                       static_cast<unsigned long long>(found.resynchronised), "functions",
                       static_cast<Py_ssize_t>(tracer.names.known()), "modules",
                       static_cast<Py_ssize_t>(tracer.modules.known()));
}

PyMethodDef tracer_functions[] = {
    {"tracer_begin", tracer_begin, METH_VARARGS, nullptr},
    {"tracer_end", tracer_end, METH_NOARGS, nullptr},
    {"tracer_c_calls", tracer_c_calls, METH_O, nullptr},
    {"tracer_pause", tracer_pause, METH_NOARGS, nullptr},
    {"tracer_resume", tracer_resume, METH_NOARGS, nullptr},
    {"tracer_statistics", tracer_statistics, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

void open_slot(Calls* calls, Session session, Thread* thread, Identity identity, Root* root, const arena::Slot& slot,
               uint32_t path) {
  if (calls->top == calls->limit && !grow(calls)) return;
  Open* open = calls->top++;
  open->identity = identity;
  open->root = root;
  ++calls->events;
  PathExtension extension;
  extension.path = path;
  const size_t bytes = path == arena::kNoName ? 0 : sizeof extension;
  recorder::append(recorder::api, thread, session, slot, &extension, bytes, &open->handle);
}

// Without a name: no module, or one that cannot be told from others.
ModuleCall module_call(const Calls* calls, Thread* thread, PyObject* module) {
  Root* outer = calls->top[-1].root;
  return module ? tracer.modules.call(module, outer, thread) : ModuleCall{arena::kNoName, arena::kNoName, outer};
}

}  // namespace

void open_module_call(Calls* calls, Session session, Thread* thread, Identity identity, uint32_t code_name,
                      PyObject* module) {
  const ModuleCall call = module_call(calls, thread, module);
  if (call.name == arena::kNoName) {
    open_named(calls, session, thread, identity, code_name, Kind::PyCall);
    return;
  }
  arena::Slot slot{};
  slot.name = call.name;
  slot.kind = Kind::Module;
  slot.start = recorder::ticks(recorder::api);
  open_slot(calls, session, thread, identity, call.root, slot, call.path);
}

void open_at_start(Calls* calls, Session session, Thread* thread, PyFrameObject* frame, uint64_t start) {
  PyCodeObject* code = code_of(frame);
  const CodeName name = tracer.names.find(code, thread);
  PyObject* module = name.module_call ? module_of(frame) : nullptr;
  const ModuleCall call = module_call(calls, thread, module);
  Py_XDECREF(module);
  const bool known = call.name != arena::kNoName;
  arena::Slot slot{};
  slot.name = known ? call.name : name.name;
  slot.kind = known ? Kind::Module : Kind::PyCall;
  slot.flags = arena::kOpenAtStart;
  slot.start = start;
  open_slot(calls, session, thread, identity_of(frame, code), call.root, slot, call.path);
}

void open_c_call(Calls* calls, Session session, Identity caller, PyObject* callable) {
  Thread* thread = recorder::current_thread();
  if (!thread) return;
  open_named(calls, session, thread, caller + 1, tracer.calls.find(callable, thread), Kind::CCall);
}

}  // namespace profd::tracer

int add_tracer(PyObject* module) {
  if (PyModule_AddFunctions(module, profd::tracer::tracer_functions) < 0) return -1;
  return profd::tracer::add_way(module);
}
