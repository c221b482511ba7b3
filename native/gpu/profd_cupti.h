// The C interface of libprofd_cupti.so.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// CUDA's driver calls it when CUDA_INJECTION64_PATH names this library. Programs without Python get an agent of their
// own; where profclient is attached it will arm us. Always 1: a process is never kept from using CUDA.
int InitializeInjection(void);

// For profclient: `api` is the pointer of the capsule profclient._recorder._api. 1: armed, `text` has sentences of what
// is not recorded (may be empty). 0: not armed, `text` says why.
// `elsewhere`: null; or CUPTI's buffers are another library's, whose callbacks it registers (it returns CUPTI's result), and
// those give each buffer's whole records to `profd_gpu_take` (null: so many were lost).
#define PROFD_GPU_GRAPH_NODES 1u  // every kernel of a CUDA graph, not the graph as one
#define PROFD_GPU_DETACH 2u       // CUPTI leaves the process at the end
int profd_gpu_arm_elsewhere(void* api, unsigned wishes, int (*elsewhere)(void), char* text, size_t bytes);
void profd_gpu_take(const uint8_t* const* records, size_t count);
// Undoes it. Waits for the kernels that run.
void profd_gpu_stop(void);
// The same at once: another profiler of this process is about to begin.
void profd_gpu_leave(void);
// "gpu.state=ok\ngpu.records=12\n..." of the recording that runs or ran last, or of the last attempt.
void profd_gpu_report(char* text, size_t bytes);

#ifdef __cplusplus
}
#endif
