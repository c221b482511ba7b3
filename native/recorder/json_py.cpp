#include "json_py.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "names_py.h"

namespace profd::recorder {

namespace {

constexpr int kDepthMax = 4;
constexpr Py_ssize_t kItemsMax = 256;

void put_text(Bytes& out, const char* text) { out.put(text, std::strlen(text)); }

void put_quoted(Bytes& out, const char* text, size_t bytes) {
  out.put("\"", 1);
  size_t from = 0;
  for (size_t i = 0; i < bytes && !out.overflowed(); i++) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.put(text + from, i - from);
    from = i + 1;
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
    put_text(out, escaped);
  }
  out.put(text + from, bytes - from);
  out.put("\"", 1);
}

void put_string(Bytes& out, PyObject* text) {
  Py_ssize_t bytes;
  PyObject* owner = nullptr;
  const char* utf8 = utf8_of(text, &bytes, &owner);
  put_quoted(out, utf8 ? utf8 : "", utf8 ? static_cast<size_t>(bytes) : 0);
  Py_XDECREF(owner);
}

void put_float(Bytes& out, double value) {
  if (!std::isfinite(value)) {  // JSON has no number for these
    put_text(out, std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    return;
  }
  char* text = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr);
  if (!text) {
    PyErr_Clear();
    put_text(out, "null");
    return;
  }
  put_text(out, text);
  PyMem_Free(text);
}

void put_int(Bytes& out, PyObject* value) {
  int overflow;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  char text[32];
  if (overflow) {  // exact digits of a huge number are of no use to a viewer
    std::snprintf(text, sizeof text, "\"%s\"", overflow > 0 ? ">2^63" : "<-2^63");
  } else {
    std::snprintf(text, sizeof text, "%lld", number);
  }
  put_text(out, text);
}

void put_value(Bytes& out, PyObject* value, int depth);

void put_sequence(Bytes& out, PyObject* items, int depth) {
  const bool list = PyList_Check(items);
  const Py_ssize_t count = list ? PyList_GET_SIZE(items) : PyTuple_GET_SIZE(items);
  out.put("[", 1);
  for (Py_ssize_t i = 0; i < count && i < kItemsMax && !out.overflowed(); i++) {
    if (i) out.put(",", 1);
    put_value(out, list ? PyList_GET_ITEM(items, i) : PyTuple_GET_ITEM(items, i), depth + 1);
  }
  if (count > kItemsMax) put_text(out, ",\"...\"");
  out.put("]", 1);
}

void put_dict(Bytes& out, PyObject* dict, int depth) {
  PyObject *key, *value;
  Py_ssize_t at = 0, count = 0;
  out.put("{", 1);
  while (PyDict_Next(dict, &at, &key, &value) && count < kItemsMax && !out.overflowed()) {
    if (!PyUnicode_Check(key)) continue;
    if (count++) out.put(",", 1);
    put_string(out, key);
    out.put(":", 1);
    put_value(out, value, depth + 1);
  }
  out.put("}", 1);
}

// numpy's scalars on the host convert without surprises.
bool put_numpy_scalar(Bytes& out, PyObject* value) {
  const char* type = Py_TYPE(value)->tp_name;
  if (std::strncmp(type, "numpy.", 6) != 0 || std::strcmp(type, "numpy.ndarray") == 0) return false;
  PyObject* number = PyIndex_Check(value) ? PyNumber_Index(value) : nullptr;
  if (!number) {
    PyErr_Clear();
    number = PyNumber_Float(value);
  }
  if (!number) {
    PyErr_Clear();
    return false;
  }
  PyLong_Check(number) ? put_int(out, number) : put_float(out, PyFloat_AS_DOUBLE(number));
  Py_DECREF(number);
  return true;
}

void put_value(Bytes& out, PyObject* value, int depth) {
  if (value == Py_None) return put_text(out, "null");
  if (PyBool_Check(value)) return put_text(out, value == Py_True ? "true" : "false");
  if (PyLong_Check(value)) return put_int(out, value);
  if (PyFloat_Check(value)) return put_float(out, PyFloat_AS_DOUBLE(value));
  if (PyUnicode_Check(value)) return put_string(out, value);
  if (depth < kDepthMax) {
    if (PyList_Check(value) || PyTuple_Check(value)) return put_sequence(out, value, depth);
    if (PyDict_Check(value)) return put_dict(out, value, depth);
  }
  if (put_numpy_scalar(out, value)) return;
  const char* type = Py_TYPE(value)->tp_name;
  put_quoted(out, type, std::strlen(type));
}

}  // namespace

void put_json_object(Bytes& out, PyObject* keys, PyObject* values) {
  out.put("{", 1);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys) && !out.overflowed(); i++) {
    if (i) out.put(",", 1);
    put_string(out, PyTuple_GET_ITEM(keys, i));
    out.put(":", 1);
    put_value(out, PyTuple_GET_ITEM(values, i), 0);
  }
  out.put("}", 1);
}

}  // namespace profd::recorder
