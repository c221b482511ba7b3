// profclient._recorder: the recorder's life for Python (tests, local captures without a daemon) and for other shared
// objects (the capsule `_api`).
#include <unistd.h>

#include "parts.h"
#include "recorder.h"

namespace {

using namespace profd::recorder;

PyObject* py_arm(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"arena_bytes", "strings_bytes", "sources", "epoch", nullptr};
  unsigned long long arena_bytes = 16u << 20;
  unsigned long long strings_bytes = 1u << 20;
  unsigned int sources = kRanges;
  unsigned long long epoch = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|KKIK:arm", const_cast<char**>(names), &arena_bytes, &strings_bytes,
                                   &sources, &epoch)) {
    return nullptr;
  }
  std::string why;
  const ArmRequest request{.epoch = epoch, .arena_bytes = arena_bytes, .strings_bytes = strings_bytes, .sources = sources};
  if (!arm(request, &why)) {
    PyErr_SetString(PyExc_RuntimeError, why.c_str());
    return nullptr;
  }
  return PyLong_FromLong(arena_fd());
}

PyObject* py_disarm(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS
  disarm();
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

PyObject* py_release(PyObject*, PyObject*) {
  bool gone;
  Py_BEGIN_ALLOW_THREADS
  gone = release();
  Py_END_ALLOW_THREADS
  return PyBool_FromLong(gone);
}

PyObject* py_tick(PyObject*, PyObject*) {
  tick();
  Py_RETURN_NONE;
}

PyObject* py_populate(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS
  populate();
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

PyObject* py_sources(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLong(api.state.armed.load(std::memory_order_relaxed));
}

PyObject* py_set_sources(PyObject*, PyObject* value) {
  const unsigned long sources = PyLong_AsUnsignedLong(value);
  if (PyErr_Occurred()) return nullptr;
  set_sources(static_cast<uint32_t>(sources));
  Py_RETURN_NONE;
}

PyObject* py_arena_fd(PyObject*, PyObject*) { return PyLong_FromLong(arena_fd()); }

PyObject* py_incarnation(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(incarnation()); }

PyObject* py_totals(PyObject*, PyObject*) {
  const Totals sum = totals();
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K}", "recorded", sum.recorded, "arena_full", sum.lost[0],
                       "strings_full", sum.lost[1], "too_large", sum.lost[2], "backed_off", sum.lost[3],
                       "foreign_thread", sum.lost[4]);
}

PyMethodDef control_methods[] = {
    {"arm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(py_arm)), METH_VARARGS | METH_KEYWORDS,
     "Make an arena and record into it; its descriptor, which stays the recorder's. RuntimeError: why not."},
    {"disarm", py_disarm, METH_NOARGS, "Stop recording; the arena stays for its reader."},
    {"release", py_release, METH_NOARGS, "Let go of the arena. False: a thread is still writing, call again."},
    {"tick", py_tick, METH_NOARGS, "Renew the arena's latest clock anchor."},
    {"populate", py_populate, METH_NOARGS, "Make the whole arena resident: for measurements."},
    {"sources", py_sources, METH_NOARGS, "Bits of what is being recorded; 0 while idle."},
    {"set_sources", py_set_sources, METH_O, "Change what is being recorded, within the session."},
    {"arena_fd", py_arena_fd, METH_NOARGS, "The arena's descriptor, or -1."},
    {"incarnation", py_incarnation, METH_NOARGS, "Random number of this process image."},
    {"totals", py_totals, METH_NOARGS, "Events recorded since the arm, and lost ones by reason."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_control(PyObject* module) {
  if (PyModule_AddFunctions(module, control_methods) < 0) return -1;
  PyObject* capsule = PyCapsule_New(&api, kApiCapsule, nullptr);
  if (!capsule) return -1;
  if (PyModule_AddObject(module, "_api", capsule) < 0) {
    Py_DECREF(capsule);
    return -1;
  }
  return 0;
}
