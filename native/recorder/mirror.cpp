#include "mirror.h"

#include <cstdint>
#include <vector>

#include "parts.h"
#include "span.h"

namespace profd::recorder {

Mirror mirror{nullptr, nullptr};

namespace {

constexpr size_t kMirroredMost = 16 * 1024;  // a thread; those beyond are not told

// Of this thread, innermost last; null: it has ended, and those within it have not.
thread_local std::vector<const void*> open;

PyObject* set_mirror(PyObject*, PyObject* args) {
  unsigned long long push, pop;
  if (!PyArg_ParseTuple(args, "KK:mirror", &push, &pop)) return nullptr;
  mirror.push = reinterpret_cast<void (*)(const char*)>(static_cast<uintptr_t>(push));
  if (pop) mirror.pop = reinterpret_cast<void (*)()>(static_cast<uintptr_t>(pop));
  forget_kept_spans();
  Py_RETURN_NONE;
}

PyMethodDef mirror_methods[] = {
    {"mirror", set_mirror, METH_VARARGS,
     "Tell void(const char *) and void() at these addresses, which stay valid, of each range; 0: no more."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void mirror_begin(const void* owner, PyObject* name) {
  const char* text = open.size() < kMirroredMost ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) return PyErr_Clear();
  open.push_back(owner);
  mirror.push(text);
}

void mirror_end(const void* owner) {
  for (size_t i = open.size(); i-- > 0;) {
    if (open[i] != owner) continue;
    open[i] = nullptr;
    break;
  }
  for (; !open.empty() && !open.back(); open.pop_back()) mirror.pop();
}

}  // namespace profd::recorder

int add_mirror(PyObject* module) { return PyModule_AddFunctions(module, profd::recorder::mirror_methods); }
