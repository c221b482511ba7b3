// profclient._recorder. What it holds is in parts.h.
#include <initializer_list>

#include "parts.h"

namespace {

// One recorder per process, and it leans on the GIL: other interpreters and free-threaded builds get an ImportError,
// which profclient takes for "not available" (profclient.missing says it).
bool refused() {
#ifdef Py_GIL_DISABLED
  PyErr_SetString(PyExc_ImportError, "profclient does not record in free-threaded builds of Python");
  return true;
#else
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return false;
  PyErr_SetString(PyExc_ImportError, "profclient records in the main interpreter only, not in sub-interpreters");
  return true;
#endif
}

int fill(PyObject* module) {
  if (refused()) return -1;
  for (auto add : {add_control, add_span, add_decorator, add_ending, add_garbage, add_marks, add_mirror, add_op, add_optimizers,
                   add_library, add_agent, add_encoder, add_tracer}) {
    if (add(module) < 0) return -1;
  }
  return 0;
}

PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(fill)},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "profclient._recorder", "Recording inside targets; see native/recorder.", 0, nullptr, module_slots,
    nullptr,               nullptr,                nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__recorder() { return PyModuleDef_Init(&definition); }
