// profclient._recorder. What it holds is in parts.h.
#include <initializer_list>

#include "parts.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "profclient._recorder", "Recording inside targets; see native/recorder.", -1,
    nullptr,               nullptr,                nullptr,                                        nullptr,
    nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__recorder() {
  PyObject* module = PyModule_Create(&definition);
  if (!module) return nullptr;
  for (auto add : {add_control, add_span, add_decorator, add_ending, add_marks, add_op, add_agent, add_encoder, add_tracer}) {
    if (add(module) < 0) {
      Py_DECREF(module);
      return nullptr;
    }
  }
  return module;
}
