#include "library.h"

#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <link.h>

namespace profd::cupti {
namespace {

// Best first: CUDA 13's and 12's.
constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
constexpr const char* kPaths[] = {"/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so"};

void* mapped(const char* name) { return dlopen(name, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL); }
void* opened(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }

// The path of a libcupti that is mapped under whatever name: wheels rename theirs.
int find_mapped(dl_phdr_info* info, size_t, void* path) {
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* name = slash ? slash + 1 : info->dlpi_name;
  if (std::strncmp(name, "libcupti", 8) != 0 || !std::strstr(name, ".so")) return 0;
  *static_cast<std::string*>(path) = info->dlpi_name;
  return 1;
}

// One that is there already, by any name.
void* find_there() {
  for (const char* name : kNames)
    if (void* handle = mapped(name)) return handle;
  std::string path;
  return dl_iterate_phdr(find_mapped, &path) ? mapped(path.c_str()) : nullptr;
}

// A second libcupti beside one that is there would fight with it over everything.
void* find(State* state, std::string* why) {
  *state = State::NoCupti;
  if (const char* given = std::getenv("PROFD_CUPTI_LIBRARY")) {
    void* handle = opened(given);
    if (!handle) *why = std::string("PROFD_CUPTI_LIBRARY: ") + dlerror();
    return handle;
  }
  // Some versions crash when they are called without a driver (docs/facts/cupti.md).
  if (!driver()) {
    *state = State::NoDriver;
    *why = "the process has not loaded CUDA's driver library yet, capture again when it uses CUDA";
    return nullptr;
  }
  if (void* handle = find_there()) return handle;
  for (const char* name : kNames)
    if (void* handle = opened(name)) return handle;
  for (const char* path : kPaths)
    if (void* handle = opened(path)) return handle;
  *why = "no libcupti is to be found: install nvidia-cuda-cupti, or put CUDA's extras/CUPTI/lib64 on LD_LIBRARY_PATH";
  return nullptr;
}

template <typename F>
bool resolve(void* handle, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(handle, name));
  return function != nullptr;
}

bool resolve_all(void* handle, Functions& to, std::string* why) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto*& function) {
    if (!resolve(handle, name, function) && !missing) missing = name;
  };
  need("cuptiGetVersion", to.get_version);
  need("cuptiGetResultString", to.get_result_string);
  need("cuptiGetTimestamp", to.get_timestamp);
  need("cuptiSubscribe", to.subscribe);
  need("cuptiUnsubscribe", to.unsubscribe);
  need("cuptiActivityRegisterCallbacks", to.register_callbacks);
  need("cuptiActivityEnable", to.enable);
  need("cuptiActivityDisable", to.disable);
  need("cuptiActivityFlushAll", to.flush_all);
  need("cuptiActivityGetNextRecord", to.next_record);
  need("cuptiActivityGetNumDroppedRecords", to.dropped_records);
  need("cuptiActivitySetAttribute", to.set_attribute);
  if (missing) *why = std::string("its libcupti has no ") + missing + ": install that of CUDA 12.1 or later";
  resolve(handle, "cuptiSubscribe_v2", to.subscribe_v2);
  resolve(handle, "cuptiActivityPushExternalCorrelationId", to.push_external);
  resolve(handle, "cuptiActivityPopExternalCorrelationId", to.pop_external);
  resolve(handle, "cuptiSetThreadIdType", to.set_thread_id_type);
  resolve(handle, "cuptiGetCallbackName", to.callback_name);
  resolve(handle, "cuptiEnableDomain", to.enable_domain);
  resolve(handle, "cuptiFinalize", to.finalize);
  return !missing;
}

}  // namespace

void* driver() { return dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL); }

bool is_mapped() { return std::getenv("PROFD_CUPTI_LIBRARY") || find_there(); }

const Functions* library(State* state, std::string* why) {
  static Functions functions;
  static bool found = false;
  *state = State::Ok;
  if (found) return &functions;
  void* handle = find(state, why);
  if (!handle) return nullptr;
  *state = State::UnknownCupti;
  if (!resolve_all(handle, functions, why)) return nullptr;
  *state = State::Ok;
  found = true;
  return &functions;
}

uint32_t cuda_major(uint32_t version) {
  if (version >= 10'000) return version / 10'000;  // 130001
  return version >= 18 ? 12 : 0;                   // 18 is 12.1, 28 is 12.9
}

std::string describe(const Functions& cupti, Result result) {
  const char* name = nullptr;
  if (cupti.get_result_string(result, &name) != kSuccess || !name) name = "error";
  return std::string(name) + " (" + std::to_string(result) + ")";
}

}  // namespace profd::cupti
