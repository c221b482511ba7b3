// The C entry points, for ctypes: calls through it run without the GIL. An error is a sentence that stays valid until the
// next call of the same thread; null is success.
#include <torch/version.h>

#include <cstdint>
#include <exception>
#include <string>

#include "observer.h"

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

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// What the build was made for: torch version, git version, ABI, architecture, our version.
EXPORTED const char* profd_torch_build() { return PROFD_TORCH_BUILD; }

// Starts the observer with the recorder that `recorder` (the pointer of profclient._recorder._api) belongs to.
EXPORTED const char* profd_torch_start(const void* recorder, uint32_t wanted) {
  const Api* api = static_cast<const Api*>(recorder);
  if (api->version != profd::recorder::kApiVersion || api->bytes < sizeof(Api)) {
    return said("it was built for another version of profclient: profctl torch build");
  }
  return guarded([&] { profd::torch_observer::start(*api, wanted); });
}

EXPORTED const char* profd_torch_stop() {
  return guarded([] { profd::torch_observer::stop(); });
}
