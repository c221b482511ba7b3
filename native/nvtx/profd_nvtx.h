// The C interface of libprofd_nvtx.so.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// NVTX calls it in a process whose NVTX_INJECTION64_PATH names this library: once for each copy of its headers. 0: that
// copy is not understood and goes on without a tool.
int InitializeInjectionNvtx2(const void* (*get_export_table)(unsigned));

// Records ranges and marks with this recorder (the pointer of the capsule profclient._recorder._api) while it records.
// 0: it is of another version. At most one recorder in a process.
int profd_nvtx_start(const void* api);
void profd_nvtx_stop(void);

// The other way: another tool is told of our ranges (profclient.emit_nvtx). Loads the tool that NVTX_INJECTION64_PATH names,
// once. Null: it is there; else a sentence.
const char* profd_nvtx_open(void);
void profd_nvtx_push(const char* name);
void profd_nvtx_pop(void);

// How many copies of NVTX have found us; 0: none of the program's ranges can be seen.
unsigned profd_nvtx_copies(void);

#ifdef __cplusplus
}
#endif
