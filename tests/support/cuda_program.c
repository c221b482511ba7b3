/* A CUDA program without CUDA: loads an empty libcuda.so.1 (its argument) and the library that CUDA_INJECTION64_PATH names, as the driver does, and launches on
 * tests/support/fake_cupti.c until its standard input ends. Writes "ready\n" first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments) {
  if (count != 2 || !dlopen(arguments[1], RTLD_NOW)) return 4;
  void *tool = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
  void *cupti = dlopen(getenv("PROFD_CUPTI_LIBRARY"), RTLD_NOW);
  if (!tool || !cupti) { fprintf(stderr, "%s\n", dlerror()); return 2; }
  int (*initialize)(void) = (int (*)(void))dlsym(tool, "InitializeInjection");
  uint32_t (*launch)(const char *, uint32_t, uint32_t) = (uint32_t (*)(const char *, uint32_t, uint32_t))dlsym(cupti, "fake_launch");
  void (*copy)(uint32_t, uint64_t) = (void (*)(uint32_t, uint64_t))dlsym(cupti, "fake_copy");
  if (initialize() != 1) return 3;
  int (*state)(int) = (int (*)(int))dlsym(cupti, "fake_state");
  if (getenv("PRINT_CUPTI")) fprintf(stderr, "subscribed %d of %d\n", state(0), state(6));
  puts("ready");
  fflush(stdout);
  struct pollfd input = {.fd = 0, .events = POLLIN};
  while (poll(&input, 1, 1) == 0) {
    launch("void saxpy<float>(int, float, float*, float*)", 7, 10);
    copy(1, 4096);
  }
  return 0;
}
