#include "script.h"

#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/profiler/util.h>

#include <string>
#include <vector>

namespace profd::torch_observer {
namespace {

uint32_t intern_joined(const recorder::Api& api, recorder::Thread* thread, recorder::Session session,
                       const std::vector<std::string>& parts, char separator) {
  if (parts.empty()) return arena::kNoName;  // eager code: nothing has been allocated
  std::string joined;
  for (const std::string& part : parts) {
    if (!joined.empty()) joined += separator;
    joined += part;
  }
  return recorder::intern(api, thread, session, joined.data(), joined.size());
}

}  // namespace

uint32_t script_stack(const recorder::Api& api, recorder::Thread* thread, recorder::Session session) try {
  using namespace torch::profiler::impl;
  const auto entries = torch::jit::currentCallstack();
  if (entries.empty()) return arena::kNoName;
  return intern_joined(api, thread, session, callstackStr(prepareCallstack(entries)), ';');
} catch (...) {
  return arena::kNoName;
}

uint32_t script_module(const recorder::Api& api, recorder::Thread* thread, recorder::Session session) try {
  return intern_joined(api, thread, session, torch::jit::currentModuleHierarchy(), '.');
} catch (...) {
  return arena::kNoName;
}

}  // namespace profd::torch_observer
