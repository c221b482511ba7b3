#include "profd_nvtx.h"

#include "client.h"
#include "ranges.h"
#include "tool.h"

#define EXPORTED __attribute__((visibility("default")))

using profd::recorder::Api;

extern "C" EXPORTED int InitializeInjectionNvtx2(const void* (*get_export_table)(unsigned)) {
  return get_export_table && profd::nvtx::attach(reinterpret_cast<profd::nvtx::GetExportTable>(get_export_table));
}

extern "C" EXPORTED int profd_nvtx_start(const void* api) {
  const auto* theirs = static_cast<const Api*>(api);
  if (theirs->version != profd::recorder::kApiVersion || theirs->bytes < sizeof(Api)) return 0;
  profd::nvtx::write_to(theirs);
  profd::nvtx::turn_on();
  return 1;
}

extern "C" EXPORTED void profd_nvtx_stop(void) { profd::nvtx::turn_off(); }

extern "C" EXPORTED const char* profd_nvtx_open(void) { return profd::nvtx::open_tool(); }

extern "C" EXPORTED void profd_nvtx_push(const char* name) { profd::nvtx::tell_push(name); }

extern "C" EXPORTED void profd_nvtx_pop(void) { profd::nvtx::tell_pop(); }

extern "C" EXPORTED unsigned profd_nvtx_copies(void) { return profd::nvtx::copies(); }
