// Names of what is called from Python and is not Python, as torch.profiler writes them: its repr, less the address:
// "<built-in function len>", "<built-in method append of list object>". Under the GIL.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "parts.h"
#include "writer.h"

namespace profd::tracer {

// A method call passes a bound object made for it alone: methods are known by their definition and their type.
class CallNames {
 public:
  void open(recorder::Session session) { session_ = session; }
  void close();
  uint32_t find(PyObject* callable, recorder::Thread* thread);

 private:
  static constexpr size_t kCallsMax = 20'000;  // what comes later is named anew each time

  struct Key {
    const void* definition;  // PyMethodDef, or null
    PyTypeObject* type;      // of what it is a method of, or of the callable itself
    bool operator==(const Key& other) const { return definition == other.definition && type == other.type; }
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return (reinterpret_cast<uintptr_t>(key.definition) * 31 + reinterpret_cast<uintptr_t>(key.type)) *
                 0x9e3779b97f4a7c15u >> 20;
    }
  };
  struct Known {
    uint32_t name;
    std::string method;  // extensions make definitions as they run: the same address may mean another one
  };

  recorder::Session session_ = 0;
  std::unordered_map<Key, Known, Hash> known_;  // types are owned
};

}  // namespace profd::tracer
