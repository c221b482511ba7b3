#include "tracer_calls.h"

#include <utility>

#include "recorder.h"
#include "tracer_text.h"

namespace profd::tracer {

namespace {

struct Call {
  const PyMethodDef* definition = nullptr;
  PyTypeObject* type = nullptr;
  bool is_method = false;
};

Call call_of(PyObject* callable) {
  if (PyCFunction_Check(callable)) {
    const auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
    PyObject* self = function->m_self;
    const bool is_method = self && !PyModule_Check(self);
    return {function->m_ml, is_method ? Py_TYPE(self) : Py_TYPE(callable), is_method};
  }
  if (PyObject_TypeCheck(callable, &PyMethodDescr_Type)) {
    const auto* method = reinterpret_cast<PyMethodDescrObject*>(callable);
    return {method->d_method, PyDescr_TYPE(method), true};
  }
  if (PyType_Check(callable)) return {nullptr, reinterpret_cast<PyTypeObject*>(callable), false};
  return {nullptr, Py_TYPE(callable), false};
}

std::string name_of(const Call& call, PyObject* callable) {
  std::string name;
  if (call.definition) {
    name = call.is_method ? "<built-in method " : "<built-in function ";
    name += call.definition->ml_name;
    if (call.is_method) {
      name += " of ";
      append_type_name(name, call.type);
      name += " object";
    }
    return name + ">";
  }
  name = PyType_Check(callable) ? "<class '" : "<";
  append_type_name(name, call.type);
  return name + (PyType_Check(callable) ? "'>" : " object>");
}

}  // namespace

void CallNames::close() {
  auto known = std::exchange(known_, {});
  session_ = 0;
  for (auto& [key, value] : known) Py_DECREF(key.type);
}

uint32_t CallNames::find(PyObject* callable, recorder::Thread* thread) {
  const Call call = call_of(callable);
  const Key key{call.definition, call.type};
  const char* method = call.definition ? call.definition->ml_name : "";
  const auto found = known_.find(key);
  if (found != known_.end() && found->second.method == method) return found->second.name;
  const std::string text = name_of(call, callable);
  const uint32_t name = recorder::intern(recorder::api, thread, session_, text.data(), text.size());
  if (name == arena::kNoName) return name;  // asked for again, and counted again
  if (found != known_.end()) {
    found->second = {name, method};
  } else if (known_.size() < kCallsMax) {
    known_.emplace(key, Known{name, method});
    Py_INCREF(key.type);
  }
  return name;
}

}  // namespace profd::tracer
