// The C entry points, for ctypes: calls through it run without the GIL. An error is a sentence that stays valid until the
// next call of the same thread; null is success.
#include <torch/version.h>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

#include "device_times.h"
#include "memory.h"
#include "nvtx.h"
#include "observer.h"
#include "profiler.h"

#ifndef PROFD_TORCH_BUILD
#error "PROFD_TORCH_BUILD names what this is a build for: profclient/torch/build.py passes it"
#endif

namespace {

using profd::recorder::Api;

const char* said(const std::string& what) {
  static thread_local std::string kept;
  kept = what;
  return kept.c_str();
}

template <typename Do>
const char* guarded(Do what) {
  try {
    what();
    return nullptr;
  } catch (const std::exception& error) {
    return said(error.what());
  } catch (...) {
    return said("an exception of an unknown type");
  }
}

Api& checked(void* recorder) {
  Api& api = *static_cast<Api*>(recorder);
  if (api.version == profd::recorder::kApiVersion && api.bytes >= sizeof(Api)) return api;
  throw std::runtime_error("it was built for another version of profclient: profctl torch build");
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// What the build was made for: torch version, git version, ABI, architecture, our version.
EXPORTED const char* profd_torch_build() { return PROFD_TORCH_BUILD; }

// `recorder` is the pointer of the capsule profclient._recorder._api.
EXPORTED const char* profd_torch_start(void* recorder, uint32_t wanted) {
  return guarded([&] { profd::torch_observer::start(checked(recorder), wanted); });
}

EXPORTED const char* profd_torch_stop() {
  return guarded([] { profd::torch_observer::stop(); });
}

// Before profd_torch_start with kTimes; they are written at its stop, while the recording still runs.
EXPORTED const char* profd_torch_times_start(void* recorder) {
  return guarded([&] { profd::torch_observer::start_device_times(checked(recorder)); });
}

EXPORTED const char* profd_torch_times_stop() {
  return guarded([] { profd::torch_observer::stop_device_times(); });
}

EXPORTED const char* profd_torch_memory_start(void* recorder) {
  return guarded([&] { profd::torch_observer::start_memory(checked(recorder)); });
}

EXPORTED const char* profd_torch_memory_stop() {
  return guarded([] { profd::torch_observer::stop_memory(); });
}

EXPORTED const char* profd_torch_profiler_start(int shapes, int flops, int devices) {
  return guarded([&] { profd::torch_observer::start_profiler(shapes, flops, devices); });
}

EXPORTED const char* profd_torch_profiler_stop(const char* path) {
  return guarded([&] { profd::torch_observer::stop_profiler(path); });
}

EXPORTED const char* profd_torch_nvtx_start(void (*push)(const char*), void (*pop)(), int sizes) {
  return guarded([&] { profd::torch_observer::start_nvtx({push, pop}, sizes != 0); });
}

EXPORTED const char* profd_torch_nvtx_stop() {
  return guarded([] { profd::torch_observer::stop_nvtx(); });
}
