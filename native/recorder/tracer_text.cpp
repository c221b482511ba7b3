#include "tracer_text.h"

#include <algorithm>
#include <cstring>

namespace profd::tracer {

namespace {

// No character is cut in two.
size_t cut(const char* utf8, size_t bytes) {
  if (bytes <= kTextBytesMax) return bytes;
  size_t end = kTextBytesMax;
  while (end > 0 && (static_cast<unsigned char>(utf8[end]) & 0xc0) == 0x80) --end;
  return end;
}

}  // namespace

void append_text(std::string& text, PyObject* object) {
  Py_ssize_t bytes = 0;
  if (!object || !PyUnicode_Check(object)) {
    text += '?';
    return;
  }
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(object, &bytes)) {
    text.append(utf8, cut(utf8, static_cast<size_t>(bytes)));
    return;
  }
  PyErr_Clear();
  PyObject* escaped = PyUnicode_AsEncodedString(object, "utf-8", "backslashreplace");
  if (escaped) {
    const char* utf8 = PyBytes_AS_STRING(escaped);
    text.append(utf8, cut(utf8, static_cast<size_t>(PyBytes_GET_SIZE(escaped))));
    Py_DECREF(escaped);
  } else {
    PyErr_Clear();
    text += '?';
  }
}

void append_type_name(std::string& text, PyTypeObject* type) {
  const char* dot = std::strrchr(type->tp_name, '.');  // heap types have no module in tp_name, static ones may
  const char* name = dot ? dot + 1 : type->tp_name;
  text.append(name, cut(name, std::strlen(name)));
}

}  // namespace profd::tracer
