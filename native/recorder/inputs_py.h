// What an operator was called with, from Python objects: Ext::Inputs and Ext::TensorIds. Under the GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "extensions.h"

namespace profd::recorder {

// Adds the records of `inputs`, a tuple or list. Shapes, strides, types and addresses are copied at once and nothing is
// kept alive. Only cheap, harmless questions are asked: nothing that could run a subclass's code, copy, or wait for a
// device. Raises nothing.
void put_inputs(Extensions& out, PyObject* inputs);

}  // namespace profd::recorder
