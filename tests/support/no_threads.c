// Preloaded: while the file that PROFD_TEST_NO_THREADS names exists, no thread can be started.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (!real) real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
  const char *file = getenv("PROFD_TEST_NO_THREADS");
  return file && access(file, F_OK) == 0 ? EAGAIN : real(thread, attributes, start, argument);
}
