// Collections of the garbage collector, as rows: one callable in gc.callbacks while a recording runs.
#include <cstdio>
#include <cstring>

#include "names_py.h"
#include "parts.h"
#include "recorder.h"

namespace profd::recorder {

namespace {

constexpr uint64_t kLeastNs = 100'000;  // shorter ones are left out: a program that makes objects has thousands a second

// A collection does not begin within another of its interpreter, and this one is in the list of the main one alone.
struct Collection {
  Session session = 0;
  uint64_t ticks = 0;
  uint64_t ns = 0;
};
thread_local Collection running;

long generation_of(PyObject* info) {
  PyObject* found = PyDict_Check(info) ? PyDict_GetItemString(info, "generation") : nullptr;  // borrowed
  const long generation = found && PyLong_Check(found) ? PyLong_AsLong(found) : -1;
  if (generation == -1) PyErr_Clear();
  return generation;
}

void append_collection(const Collection& one, PyObject* info) {
  Thread* thread = current_thread();
  if (!thread) return;
  char name[48];
  const int bytes = snprintf(name, sizeof name, "gc: generation %ld", generation_of(info));
  const Slot head{.start = one.ticks, .end = ticks(api),
                  .name = intern(api, thread, one.session, name, static_cast<size_t>(bytes)), .kind = Kind::Range,
                  .flags = 0, .scope = 0, .extensions = 0, .payload = 0};
  append(api, thread, one.session, head);
}

// on_collection(phase, info), as gc.callbacks calls it: "start" and "stop". Raises nothing into a collection.
PyObject* on_collection(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !PyUnicode_Check(args[0])) Py_RETURN_NONE;
  if (PyUnicode_CompareWithASCIIString(args[0], "start") == 0) {
    running.session = session_of(api, kRanges);
    if (running.session) {
      running.ticks = ticks(api);
      running.ns = monotonic_ns();
    }
    Py_RETURN_NONE;
  }
  const Collection one = running;
  running.session = 0;
  if (one.session && session_of(api, kRanges) == one.session && monotonic_ns() - one.ns >= kLeastNs) {
    append_collection(one, args[1]);
  }
  Py_RETURN_NONE;
}

PyMethodDef garbage_methods[] = {
    {"on_collection", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(on_collection)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

}  // namespace profd::recorder

int add_garbage(PyObject* module) { return PyModule_AddFunctions(module, profd::recorder::garbage_methods); }
