// profclient._recorder. What it holds is in parts.h.
#include "parts.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "profclient._recorder", "Recording inside targets; see native/recorder.", -1,
    nullptr,               nullptr,                nullptr,                                        nullptr,
    nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__recorder() {
  PyObject* module = PyModule_Create(&definition);
  return module;
}
