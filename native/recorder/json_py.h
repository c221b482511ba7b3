// User arguments as JSON. Under the GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "extensions.h"

namespace profd::recorder {

// Writes {"key": value, ...} of two tuples of equal length. Numbers, strings, booleans, None, lists, tuples and
// dictionaries (four levels) are written; of anything else the type's name: reading an unknown object's value could
// run code of the job or wait for a device. Raises nothing; overflows `out` when it does not fit.
void put_json_object(Bytes& out, PyObject* keys, PyObject* values);

}  // namespace profd::recorder
