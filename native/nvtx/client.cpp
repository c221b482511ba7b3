#include "client.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include <dlfcn.h>

#include "abi.h"
#include "profd_nvtx.h"

namespace profd::nvtx {
namespace {

constexpr unsigned kFunctions = 16;  // of each of the two modules; the others have none here
constexpr uint32_t kVersion = 3;     // of NVTX

// What the tool writes to.
Function core[kFunctions], core2[kFunctions];
Function *core_slots[kFunctions], *core2_slots[kFunctions];

int module_table(Module module, Function*** table, unsigned* count) {
  if (module != Module::Core && module != Module::Core2) return 0;
  *table = module == Module::Core ? core_slots : core2_slots;
  *count = kFunctions;
  return 1;
}

const void* export_table(ExportTable which) {
  static const Callbacks callbacks{sizeof(Callbacks), module_table};
  static const VersionInfo version{sizeof(VersionInfo), kVersion, 0, [](uint32_t) {}};
  switch (which) {
    case ExportTable::Callbacks: return &callbacks;
    case ExportTable::VersionInfo: return &version;
  }
  return nullptr;
}

std::string open_once() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (!path || !*path) return "NVTX_INJECTION64_PATH names no tool: start the program under one, such as Nsight Systems";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::string("the tool of NVTX_INJECTION64_PATH cannot be loaded: ") + dlerror();
  auto* initialize = reinterpret_cast<int (*)(GetExportTable)>(dlsym(library, "InitializeInjectionNvtx2"));
  if (reinterpret_cast<void*>(initialize) == reinterpret_cast<void*>(&InitializeInjectionNvtx2))
    return "the tool of NVTX_INJECTION64_PATH is profd, which records these ranges anyway";
  if (!initialize) return std::string(path) + " is no tool for NVTX";
  for (unsigned i = 1; i < kFunctions; i++) core_slots[i] = &core[i], core2_slots[i] = &core2[i];
  return initialize(export_table) ? "" : std::string(path) + " does not want to know of NVTX ranges now";
}

template <typename Made>
Made* function(Core place) {
  return reinterpret_cast<Made*>(std::atomic_ref(core[static_cast<unsigned>(place)]).load(std::memory_order_acquire));
}

}  // namespace

const char* open_tool() {
  static const std::string why = open_once();
  return why.empty() ? nullptr : why.c_str();
}

void tell_push(const char* name) {
  if (auto* push = function<int(const char*)>(Core::RangePushA)) push(name);
}

void tell_pop() {
  if (auto* pop = function<int()>(Core::RangePop)) pop();
}

}  // namespace profd::nvtx
