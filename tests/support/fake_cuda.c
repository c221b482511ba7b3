/* A libcuda.so.1 for machines without a GPU: the calls of bench/gpu/driver.py. Device memory is the host's, a kernel adds
 * 1 to every element, and each piece of work leaves a record in tests/support/fake_cupti.c (PROFD_CUPTI_LIBRARY). None
 * of it is a claim about a GPU: times are made up.
 * As with CUDA, to wait for the context ends what is captured meanwhile with an error.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t number; int capturing; uint32_t nodes; const char *name; float *array; uint32_t count; } stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t streams = 7;
static int captures, broken; /* that run; whether one was broken */

static void *cupti(const char *function) {
  static void *library;
  if (!library) library = dlopen(getenv("PROFD_CUPTI_LIBRARY"), RTLD_NOW);
  return library ? dlsym(library, function) : NULL;
}
static void record_kernel(const char *name, uint32_t on) {
  uint32_t (*launch)(const char *, uint32_t, uint32_t) = cupti("fake_launch");
  if (launch) launch(name, on, 1);
}
static int record_copy(uint32_t kind, size_t bytes) {
  void (*copy)(uint32_t, uint64_t) = cupti("fake_copy");
  if (copy) copy(kind, bytes);
  return 0;
}

/* Loads the tool that CUDA_INJECTION64_PATH names, once, as CUDA's driver does. */
static void inject(void) {
  const char *path = getenv("CUDA_INJECTION64_PATH");
  void *tool = path && *path ? dlopen(path, RTLD_NOW) : NULL;
  int (*initialize)(void) = tool ? (int (*)(void))dlsym(tool, "InitializeInjection") : NULL;
  if (initialize) initialize();
}
int cuInit(unsigned flags) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)flags;
  pthread_once(&once, inject);
  return 0;
}
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &streams; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  (void)device;
  *flags = 0, *active = 1;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxPushCurrent_v2(void *context) { return context == &streams ? 0 : 201; }
int cuCtxPopCurrent_v2(void **context) { *context = &streams; return 0; }
int cuCtxSetCurrent(void *context) { return context == &streams ? 0 : 201; }
int cuCtxSynchronize(void) {
  if (captures > 0) broken = 1;
  return captures > 0 ? 900 : 0;
}
int cuModuleLoadData(void **module, const char *image) { *module = strdup(image);  /* the caller frees its own */ return strstr(image, ".visible .entry") ? 0 : 200; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = strdup(name); return strstr(module, name) ? 0 : 500; }
int cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = (uint64_t)(uintptr_t)malloc(bytes); return 0; }
int cuStreamCreate(stream **made, unsigned flags) {
  (void)flags;
  *made = calloc(1, sizeof **made);
  (*made)->number = ++streams;
  return 0;
}
int cuStreamSynchronize(stream *on) { (void)on; return 0; }

static void add(float *array, uint32_t count) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < count; i++) array[i] += 1;
  pthread_mutex_unlock(&lock);
}
int cuLaunchKernel(const char *name, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, stream *on, void **arguments, void **extra) {
  (void)gy; (void)gz; (void)by; (void)bz; (void)shared; (void)extra;
  float *array = *(float **)arguments[0];
  uint32_t count = *(uint32_t *)arguments[1];
  if (gx * bx != count) return 1;
  if (on->capturing) {
    on->nodes++, on->name = name, on->array = array, on->count = count;
    return 0;
  }
  add(array, count);
  record_kernel(name, on->number);
  return 0;
}
int cuStreamBeginCapture_v2(stream *on, int mode) { (void)mode; on->capturing = 1, captures++; return 0; }
int cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return 0; }
int cuStreamEndCapture(stream *on, void **graph) {
  int was = broken;
  on->capturing = 0, captures--, broken = 0;
  *graph = on;
  return was ? 901 : 0;
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, uint64_t flags) { (void)flags; *executable = graph; return 0; }
int cuGraphLaunch(stream *graph, stream *on) {
  void (*launch)(const char *, uint32_t, uint32_t) = cupti("fake_graph");
  for (uint32_t i = 0; i < graph->nodes; i++) add(graph->array, graph->count);
  if (launch) launch(graph->name, on->number, graph->nodes);
  return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, stream *on) {
  (void)on;
  memcpy((void *)(uintptr_t)to, from, bytes);
  return record_copy(1, bytes);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, stream *on) {
  (void)on;
  memcpy(to, (void *)(uintptr_t)from, bytes);
  return record_copy(2, bytes);
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, stream *on) {
  (void)on;
  memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
  return record_copy(8, bytes);
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { return cuMemcpyDtoHAsync_v2(to, from, bytes, NULL); }
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, stream *on) {
  (void)on;
  memset((void *)(uintptr_t)to, value, bytes);
  void (*fill)(uint64_t) = cupti("fake_memset");
  if (fill) fill(bytes);
  return 0;
}
int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes) { return cuMemsetD8Async(to, value, bytes, NULL); }
