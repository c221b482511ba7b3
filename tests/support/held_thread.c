// Preloaded: while the file that PROFD_TEST_HELD names exists, a thread that is started runs nothing of its own before
// somebody has looked through a folder (the agent, at the threads of the process).
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

struct Held {
  void *(*start)(void *);
  void *argument;
};

static int looked;

static void *wait_and_start(void *one) {
  struct Held held = *(struct Held *)one;
  free(one);
  while (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) sched_yield();
  return held.start(held.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (!real) real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
  const char *file = getenv("PROFD_TEST_HELD");
  if (!file || access(file, F_OK) != 0) return real(thread, attributes, start, argument);
  __atomic_store_n(&looked, 0, __ATOMIC_RELEASE);
  struct Held *held = malloc(sizeof *held);
  *held = (struct Held){start, argument};
  return real(thread, attributes, wait_and_start, held);
}

int closedir(DIR *folder) {
  static int (*real)(DIR *);
  if (!real) real = (int (*)(DIR *))dlsym(RTLD_NEXT, "closedir");
  __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
  return real(folder);
}
