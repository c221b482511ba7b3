// Text out of Python objects, for names. Never leaves a Python exception behind.
#pragma once

#include <string>

#include "parts.h"

namespace profd::tracer {

inline constexpr size_t kTextBytesMax = 4096;  // of a file's or function's name; the rest is cut off

// Appends a str, or "?" for what is none. What UTF-8 cannot say (undecodable file names) becomes escapes.
void append_text(std::string& text, PyObject* object);

// Appends the __name__ of a type.
void append_type_name(std::string& text, PyTypeObject* type);

}  // namespace profd::tracer
