// Names of Python functions: "file(line): function", as torch.profiler writes them. Under the GIL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parts.h"
#include "writer.h"

namespace profd::tracer {

struct CodeName {
  PyCodeObject* code;  // owned while known: its address cannot be another function's
  uint32_t name;       // string id
  bool module_call;    // torch.nn.Module.__call__: its events are named after the module
};

// Code objects met in one session. A name is in the arena before the first event that uses it, so that what a killed
// process leaves can be named.
class CodeNames {
 public:
  // `prefixes`: of file names, with their separator, cut off: the first that fits.
  void open(recorder::Session session, std::vector<std::string> prefixes);
  void close();  // lets go of the code objects: may run finalizers

  CodeName find(PyCodeObject* code, recorder::Thread* thread) {
    for (size_t at = slot_of(code);; at = (at + 1) & mask_) {
      const CodeName& entry = table_[at];
      if (__builtin_expect(entry.code == code, 1)) return entry;
      if (!entry.code) return learn(code, thread);
    }
  }

  size_t known() const { return used_; }

 private:
  // Programs that make code as they run must not grow us without end; what comes later is named anew each time.
  static constexpr size_t kCodesMax = size_t{1} << 17;
  static constexpr size_t kTableAtFirst = size_t{1} << 12;

  size_t slot_of(const PyCodeObject* code) const {
    return static_cast<size_t>((reinterpret_cast<uintptr_t>(code) * 0x9e3779b97f4a7c15u) >> 32) & mask_;
  }
  CodeName learn(PyCodeObject* code, recorder::Thread* thread);
  void grow();
  void place(const CodeName& entry);
  std::string name_of(const PyCodeObject* code) const;

  recorder::Session session_ = 0;
  std::vector<std::string> prefixes_;
  std::vector<CodeName> table_;
  size_t mask_ = 0;
  size_t used_ = 0;
};

}  // namespace profd::tracer
