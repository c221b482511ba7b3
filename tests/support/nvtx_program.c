/* A program without Python that uses CUDA and NVTX, and neither is there: it loads an empty libcuda.so.1 (its argument)
 * and our two libraries as CUDA's driver and NVTX's headers do, and launches on tests/support/fake_cupti.c within ranges
 * until its standard input ends. Writes "ready\n" first. What it knows of NVTX stands in native/nvtx/abi.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef void (*function)(void);

enum { PUSH = 9, POP = 11, CORE = 16, CORE2 = 16 };
static function core[CORE], core2[CORE2];
static function *core_slots[CORE], *core2_slots[CORE2];

static int module_table(uint32_t module, function ***table, unsigned *count) {
  *table = module == 1 ? core_slots : module == 5 ? core2_slots : NULL;
  *count = CORE;
  return *table != NULL;
}
static struct { size_t bytes; int (*module_table)(uint32_t, function ***, unsigned *); } callbacks = {16, module_table};
static const void *export_table(uint32_t which) { return which == 1 ? &callbacks : NULL; }

static void push(const char *name) {
  int (*set)(const char *) = (int (*)(const char *))__atomic_load_n(&core[PUSH], __ATOMIC_ACQUIRE);
  if (set) set(name);
}
static void pop(void) {
  int (*set)(void) = (int (*)(void))__atomic_load_n(&core[POP], __ATOMIC_ACQUIRE);
  if (set) set();
}

int main(int count, char **arguments) {
  if (count != 2 || !dlopen(arguments[1], RTLD_NOW)) return 4;
  void *tool = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
  void *nvtx = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_NOW);
  void *cupti = dlopen(getenv("PROFD_CUPTI_LIBRARY"), RTLD_NOW);
  if (!tool || !nvtx || !cupti) { fprintf(stderr, "%s\n", dlerror()); return 2; }
  for (int i = 1; i < CORE; i++) core_slots[i] = &core[i], core2_slots[i] = &core2[i];
  int (*initialize)(void) = (int (*)(void))dlsym(tool, "InitializeInjection");
  int (*attach)(const void *(*)(uint32_t)) = (int (*)(const void *(*)(uint32_t)))dlsym(nvtx, "InitializeInjectionNvtx2");
  uint32_t (*launch)(const char *, uint32_t, uint32_t) = (uint32_t (*)(const char *, uint32_t, uint32_t))dlsym(cupti, "fake_launch");
  if (initialize() != 1 || attach(export_table) != 1) return 3;
  puts("ready");
  fflush(stdout);
  struct pollfd input = {.fd = 0, .events = POLLIN};
  while (poll(&input, 1, 1) == 0) {
    push("solve");
    push("smooth");
    launch("jacobi", 7, 3);
    pop();
    pop();
  }
  return 0;
}
