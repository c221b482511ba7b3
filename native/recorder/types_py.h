// A static type to be filled in.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace profd::recorder {

inline PyTypeObject blank_type(const char* name, Py_ssize_t basic_size, unsigned long flags) {
  const PyVarObject head = {PyObject_HEAD_INIT(nullptr) 0};
  PyTypeObject type{};
  type.ob_base = head;
  type.tp_name = name;
  type.tp_basicsize = basic_size;
  type.tp_flags = Py_TPFLAGS_DEFAULT | flags;
  return type;
}

}  // namespace profd::recorder
