// Preloaded: the host seems to have 192 cores.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#define CORES 192

long sysconf(int name) {
  static long (*real)(int);
  if (!real) real = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  return name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF ? CORES : real(name);
}

int get_nprocs(void) { return CORES; }
int get_nprocs_conf(void) { return CORES; }
