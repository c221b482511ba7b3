// Training steps by the optimizer, with nothing registered in torch. Every torch.optim step() runs inside
// `with torch.autograd.profiler.record_function(...)` in one function that wraps it; all of them share its code. While
// a recording counts steps, record_function.__exit__ is an object that calls the one that was there and then looks
// whether it was called from that code. A step within another step (an optimizer that wraps another) has that code
// further out on its stack, too, and is not counted; one that raised had no end.
#include "parts.h"
#include "steps_py.h"

namespace profd::recorder {
namespace {

struct StepExit {
  PyObject_HEAD
  PyObject* original;  // record_function.__exit__ as it was
  PyObject* code;      // of the function around each step()
  bool counts;
};

StepExit* cast(PyObject* self) { return reinterpret_cast<StepExit*>(self); }

bool runs(PyFrameObject* frame, PyObject* code) {
  PyCodeObject* its = PyFrame_GetCode(frame);
  Py_DECREF(its);  // the frame holds it
  return reinterpret_cast<PyObject*>(its) == code;
}

bool within_outermost(PyObject* code) {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  if (!frame) return false;
  bool outermost = runs(frame, code);
  while (outermost && frame) {
    PyFrameObject* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
    if (frame) outermost = !runs(frame, code);
  }
  Py_XDECREF(frame);
  return outermost;
}

// Arguments: the range, then type, value and traceback of what was raised in it.
bool ended_well(PyObject* args) { return PyTuple_GET_SIZE(args) >= 2 && PyTuple_GET_ITEM(args, 1) == Py_None; }

PyObject* call_exit(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* result = PyObject_Call(cast(self)->original, args, kwargs);
  if (result && cast(self)->counts && ended_well(args) && within_outermost(cast(self)->code)) step_noticed();
  return result;
}

PyObject* bind_exit(PyObject* self, PyObject* object, PyObject*) {
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

// All else is the original's: who reads its source (TorchScript) or its name finds what was there.
PyObject* exit_attribute(PyObject* self, PyObject* name) { return PyObject_GetAttr(cast(self)->original, name); }
PyObject* representation(PyObject* self) { return PyObject_Repr(cast(self)->original); }

int traverse_exit(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(cast(self)->original);
  Py_VISIT(cast(self)->code);
  return 0;
}

void dealloc_exit(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(cast(self)->original);
  Py_CLEAR(cast(self)->code);
  type->tp_free(self);
  Py_DECREF(type);
}

PyType_Slot step_exit_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_exit)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(bind_exit)},
                       {Py_tp_getattro, reinterpret_cast<void*>(exit_attribute)},
                       {Py_tp_repr, reinterpret_cast<void*>(representation)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse_exit)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_exit)},
                       {0, nullptr}};

PyType_Spec step_exit_spec = {"profclient._recorder.step_exit", sizeof(StepExit), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, step_exit_slots};

PyTypeObject* type = nullptr;

PyObject* step_exit(PyObject*, PyObject* args) {
  PyObject *original, *code;
  if (!PyArg_ParseTuple(args, "OO!:step_exit", &original, &PyCode_Type, &code)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  cast(self)->original = Py_NewRef(original);
  cast(self)->code = Py_NewRef(code);
  cast(self)->counts = true;
  return self;
}

PyObject* stop_counting(PyObject*, PyObject* self) {
  if (!Py_IS_TYPE(self, type)) return PyErr_SetString(PyExc_TypeError, "no step_exit"), nullptr;
  cast(self)->counts = false;
  Py_RETURN_NONE;
}

PyMethodDef step_methods[] = {
    {"step_exit", step_exit, METH_VARARGS,
     "step_exit(original, code, /)\n--\n\nA stand-in for a method __exit__: calls it, and counts a step where the caller "
     "runs `code`, outermost."},
    {"step_exit_stop", stop_counting, METH_O, "step_exit_stop(stand_in, /)\n--\n\nIt calls the original, and no more."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace profd::recorder

int add_optimizers(PyObject* module) {
  using namespace profd::recorder;
  type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &step_exit_spec, nullptr));
  return type ? PyModule_AddFunctions(module, step_methods) : -1;
}
