#include "nvtx_ranges.h"

#include <string>

#include <dlfcn.h>

#include "../recorder/recorder.h"

namespace profd::cupti {
namespace {

constexpr const char* kName = "libprofd_nvtx.so";

// It, if NVTX has loaded it: we never do, since then it would be nobody's tool.
void* loaded() {
  Dl_info self;
  if (!dladdr(reinterpret_cast<void*>(&start_nvtx), &self)) return nullptr;
  const std::string path = self.dli_fname;
  return dlopen((path.substr(0, path.rfind('/') + 1) + kName).c_str(), RTLD_NOW | RTLD_NOLOAD);
}

}  // namespace

void start_nvtx() {
  void* library = loaded();
  if (!library) return;
  if (auto* start = reinterpret_cast<int (*)(const void*)>(dlsym(library, "profd_nvtx_start"))) start(&recorder::api);
}

void stop_nvtx() {
  void* library = loaded();
  if (!library) return;
  if (auto* stop = reinterpret_cast<void (*)()>(dlsym(library, "profd_nvtx_stop"))) stop();
}

}  // namespace profd::cupti
