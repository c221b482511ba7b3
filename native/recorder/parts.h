// What module.cpp puts together: every part adds its functions and types to the module, in one function
// `int add_<part>(PyObject* module)` declared here; -1 with a Python exception set on failure.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int add_control(PyObject* module);    // control_py.cpp
int add_span(PyObject* module);       // span_py.cpp
int add_decorator(PyObject* module);  // decorator_py.cpp
int add_ending(PyObject* module);     // ending_py.cpp
int add_garbage(PyObject* module);    // garbage_py.cpp
int add_marks(PyObject* module);      // marks_py.cpp
int add_mirror(PyObject* module);     // mirror.cpp
int add_op(PyObject* module);         // op_py.cpp
int add_optimizers(PyObject* module); // optimizers_py.cpp
int add_library(PyObject* module);    // library_py.cpp
int add_agent(PyObject* module);  // agent_module.cpp
int add_encoder(PyObject* module);  // encoder.cpp
int add_tracer(PyObject* module);  // tracer.cpp
