// A wall clock that a test steps, for programs that are started with this in LD_PRELOAD: what NTP does to a whole host
// (clock_settime, or a jump at start-up) done to one process. CLOCK_REALTIME is the kernel's plus the seconds that the
// file STEPPED_CLOCK names holds as an int64; every other clock is left alone, as by NTP.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *seconds;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find(void) {
  real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("STEPPED_CLOCK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *page = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (page != MAP_FAILED) seconds = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real_clock_gettime) find();  // before the constructor has run
  int result = real_clock_gettime(clock, now);
  if (result == 0 && seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *seconds;
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec exact;
  int result = clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return result;
}

time_t time(time_t *where) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (where) *where = exact.tv_sec;
  return exact.tv_sec;
}
