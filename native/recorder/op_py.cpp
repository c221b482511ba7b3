// record_op: events of the kind that a framework's operators are, for frameworks and kernels written in Python.
#include "inputs_py.h"
#include "parts.h"
#include "span.h"

namespace profd::recorder {

namespace {

struct Settings {
  uint8_t scope = 0;
  bool asynchronous = false;
  int64_t sequence = -1;
  uint64_t forward_thread = 0;
  PyObject* debug_handle = nullptr;  // borrowed
};

bool read_unsigned(PyObject* value, const char* what, unsigned long long most, unsigned long long* out) {
  *out = PyLong_AsUnsignedLongLong(value);
  if (PyErr_Occurred()) return false;
  if (*out <= most) return true;
  PyErr_Format(PyExc_ValueError, "%s is at most %llu, not %llu", what, most, *out);
  return false;
}

bool read_setting(PyObject* key, PyObject* value, Settings* settings) {
  unsigned long long number = 0;
  if (PyUnicode_CompareWithASCIIString(key, "asynchronous") == 0) {
    const int truth = PyObject_IsTrue(value);
    settings->asynchronous = truth > 0;
    return truth >= 0;
  }
  if (value == Py_None) return true;
  if (PyUnicode_CompareWithASCIIString(key, "scope") == 0) {
    if (!read_unsigned(value, "scope", 255, &number)) return false;
    settings->scope = static_cast<uint8_t>(number);
  } else if (PyUnicode_CompareWithASCIIString(key, "sequence") == 0) {
    if (!read_unsigned(value, "sequence", arena::kSequenceMask - 1, &number)) return false;
    settings->sequence = static_cast<int64_t>(number);
  } else if (PyUnicode_CompareWithASCIIString(key, "forward_thread") == 0) {
    if (!read_unsigned(value, "forward_thread", UINT64_MAX, &number)) return false;
    settings->forward_thread = number;
  } else if (PyUnicode_CompareWithASCIIString(key, "debug_handle") == 0) {
    if (PyLong_AsLongLong(value) == -1 && PyErr_Occurred()) return false;
    settings->debug_handle = value;
  } else {
    PyErr_Format(PyExc_TypeError, "record_op has no argument %R", key);
    return false;
  }
  return true;
}

// The low 24 bits of the payload's upper part hold small thread numbers; others travel as a record.
constexpr uint64_t kForwardMost = (uint64_t{1} << 24) - 1;

bool keep_records(Detail* detail, const Extensions& extensions) {
  if (!extensions.size()) return true;
  detail->records = static_cast<uint8_t*>(PyMem_Malloc(extensions.size()));
  if (!detail->records) {
    PyErr_NoMemory();
    return false;
  }
  std::memcpy(detail->records, extensions.data(), extensions.size());
  detail->records_bytes = extensions.size();
  return true;
}

Detail* detail_of(PyObject* inputs, const Settings& settings) {
  Detail* detail = make_detail(nullptr, nullptr);
  if (!detail) return nullptr;
  detail->kind = Kind::Op;
  detail->scope = settings.scope;
  detail->flags = settings.asynchronous ? arena::kAsync : 0;
  detail->payload = static_cast<uint64_t>(settings.sequence + 1);
  Extensions extensions;
  if (settings.forward_thread <= kForwardMost) {
    detail->payload |= settings.forward_thread << 40;
  } else {
    extensions.put_value(arena::Ext::ForwardThread, settings.forward_thread);
  }
  if (settings.debug_handle) {
    extensions.put_value<int64_t>(arena::Ext::DebugHandle, PyLong_AsLongLong(settings.debug_handle));
  }
  if (inputs && session_of(api, kRanges)) put_inputs(extensions, inputs);
  if (extensions.too_large()) lose(Lost::TooLarge, 1);
  if (keep_records(detail, extensions)) return detail;
  free_detail(detail);
  return nullptr;
}

PyObject* record_op(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  if (count < 1 || count > 2 || !PyUnicode_Check(args[0])) {
    PyErr_SetString(PyExc_TypeError, "record_op takes a name (str), inputs (a list or tuple) and keyword arguments");
    return nullptr;
  }
  PyObject* inputs = count == 2 && args[1] != Py_None ? args[1] : nullptr;
  if (inputs && !PyTuple_Check(inputs) && !PyList_Check(inputs)) {
    PyErr_Format(PyExc_TypeError, "inputs are a list or tuple, not %s", Py_TYPE(inputs)->tp_name);
    return nullptr;
  }
  Settings settings;
  for (Py_ssize_t i = 0; keywords && i < PyTuple_GET_SIZE(keywords); i++) {
    if (!read_setting(PyTuple_GET_ITEM(keywords, i), args[count + i], &settings)) return nullptr;
  }
  Detail* detail = detail_of(inputs, settings);
  return detail ? make_span(args[0], detail) : nullptr;
}

PyMethodDef op_methods[] = {
    {"record_op", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(record_op)), METH_FASTCALL | METH_KEYWORDS,
     "record_op(name, inputs=(), /, *, scope=0, sequence=None, forward_thread=None, debug_handle=None, "
     "asynchronous=False)\n--\n\n"
     "A range of the kind that a framework's operators are. Shapes and types of the inputs (tensors, arrays, numbers,\n"
     "lists of them) are copied at once while something is recorded, and nothing is kept alive. `scope` is an\n"
     "at::RecordScope, `sequence` links forward and backward, an asynchronous one may end on another thread."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

}  // namespace profd::recorder

int add_op(PyObject* module) { return PyModule_AddFunctions(module, profd::recorder::op_methods); }
