#include "library.h"

#include <cstdlib>

#include <dlfcn.h>

namespace profd::cupti {
namespace {

// Best first: CUDA 13's and 12's.
constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
constexpr const char* kPaths[] = {"/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so"};
constexpr int kDevicesMax = 64;

void* mapped(const char* name) { return dlopen(name, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL); }
void* opened(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }

void* driver() { return mapped("libcuda.so.1"); }

// A second libcupti beside one that is there would fight with it over everything.
void* find(std::string* why) {
  if (const char* given = std::getenv("PROFD_CUPTI_LIBRARY")) {
    void* handle = opened(given);
    if (!handle) *why = std::string("PROFD_CUPTI_LIBRARY: ") + dlerror();
    return handle;
  }
  // Some versions crash when they are called without a driver (docs/facts/cupti.md).
  if (!driver()) return *why = "the process has not loaded CUDA's driver library yet", nullptr;
  for (const char* name : kNames)
    if (void* handle = mapped(name)) return handle;
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
  if (missing) *why = std::string("its libcupti has no ") + missing;
  resolve(handle, "cuptiSubscribe_v2", to.subscribe_v2);
  resolve(handle, "cuptiSetThreadIdType", to.set_thread_id_type);
  resolve(handle, "cuptiGetCallbackName", to.callback_name);
  return !missing;
}

// The little of the driver's own interface that waiting needs.
struct Driver {
  int (*device_count)(int*);
  int (*primary_state)(int device, unsigned* flags, int* active);
  int (*primary_retain)(void** context, int device);
  int (*primary_release)(int device);
  int (*push)(void* context);
  int (*pop)(void** context);
  int (*synchronize)();
};

bool resolve_driver(Driver& to) {
  void* handle = driver();
  return handle && resolve(handle, "cuDeviceGetCount", to.device_count) &&
         resolve(handle, "cuDevicePrimaryCtxGetState", to.primary_state) &&
         resolve(handle, "cuDevicePrimaryCtxRetain", to.primary_retain) &&
         resolve(handle, "cuDevicePrimaryCtxRelease_v2", to.primary_release) &&
         resolve(handle, "cuCtxPushCurrent_v2", to.push) && resolve(handle, "cuCtxPopCurrent_v2", to.pop) &&
         resolve(handle, "cuCtxSynchronize", to.synchronize);
}

void wait_for(const Driver& cuda, int device) {
  unsigned flags = 0;
  int active = 0;
  void* context = nullptr;
  if (cuda.primary_state(device, &flags, &active) != 0 || !active) return;  // this process does not use it
  if (cuda.primary_retain(&context, device) != 0) return;
  if (cuda.push(context) == 0) {
    cuda.synchronize();
    cuda.pop(&context);
  }
  cuda.primary_release(device);
}

}  // namespace

const Functions* library(std::string* why) {
  static Functions functions;
  static bool found = false;
  if (found) return &functions;
  void* handle = find(why);
  if (!handle || !resolve_all(handle, functions, why)) return nullptr;
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

void wait_for_devices() {
  Driver cuda;
  int count = 0;
  if (!resolve_driver(cuda) || cuda.device_count(&count) != 0) return;
  for (int device = 0; device < count && device < kDevicesMax; device++) wait_for(cuda, device);
}

}  // namespace profd::cupti
