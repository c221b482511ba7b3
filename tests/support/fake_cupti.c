/* A libcupti for machines without a GPU: what the collector calls, and fake_* functions that make the work of a CUDA
 * program. How it behaves is in the environment:
 *   FAKE_CUPTI_VERSION   number of cuptiGetVersion (130001); records are as long as in that version
 *   FAKE_CUPTI_HOLDER    name of another tool that is subscribed
 *   FAKE_CUPTI_SUBSCRIBE error number of cuptiSubscribe
 *   FAKE_CUPTI_NO_KERNELS error number of enabling kernels
 *   FAKE_CUPTI_FLUSH     error number of cuptiActivityFlushAll
 *   FAKE_CUPTI_CLOCK_NS  how far its clock is off
 *   FAKE_CUPTI_TICKS     "clock": it counts thirds of ns since 1970; "records": its records do, its clock counts ns;
 *                        "stuck": it counts nothing
 *   FAKE_CUPTI_THREAD    1: buffers complete on a thread of its own
 *   FAKE_CUPTI_FINALIZE  error number of cuptiFinalize
 *   FAKE_CUPTI_NEXT_CALL 1: cuptiEnableDomain(1, …, runtime) returns behind the program's next call, and its call-backs
 *   FAKE_CUPTI_HOARD     1: full buffers are kept until the forced flush
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
  MEMCPY = 1, MEMSET = 2, DRIVER = 4, RUNTIME = 5, KERNEL = 10, OVERHEAD = 17, SYNC = 38, EXTERNAL = 39,
  GRAPH_TRACE = 51, KINDS = 64
};

typedef void (*requested_fn)(uint8_t **, size_t *, size_t *);
typedef void (*completed_fn)(void *, uint32_t, uint8_t *, size_t, size_t);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int enabled[KINDS];
static int subscribed, subscriptions, flushes, forced;
static requested_fn requested;
static completed_fn completed;
static uint8_t *buffer;
static size_t room, used;
static int unfinished; /* the buffer has a record of a kernel that runs: it is handed over by force alone */
static int returns;    /* what calls return */
static size_t dropped;
static uint32_t correlation;
static int finalized, gone; /* ended by another tool; by its own subscriber */
static void (*called_back)(void *, uint32_t, uint32_t, const void *);
static uint32_t domains;
static volatile uint32_t calls_told; /* calls that were called back for */
static uint64_t ahead; /* ns that the system's clock was set by */
static struct { uint8_t *at; size_t room, used; } hoard[256];
static uint32_t hoarded;
static __thread uint64_t external[64];
static __thread uint32_t externals;

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? strtol(text, NULL, 10) : otherwise;
}
static int ticks(const char *of) {
  const char *given = getenv("FAKE_CUPTI_TICKS");
  return given && strcmp(given, of) == 0;
}
static uint64_t realtime(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec + (uint64_t)number("FAKE_CUPTI_CLOCK_NS", 0) + ahead;
}
static uint64_t scaled(uint64_t ns) { return ticks("clock") || ticks("records") ? ns * 3 : ns; }
static uint64_t now(void) { return realtime(); }
static uint32_t version(void) {
  static uint32_t found;
  if (!found) found = (uint32_t)number("FAKE_CUPTI_VERSION", 130001);
  return found;
}
static size_t size_of(uint32_t kind) {
  switch (kind) {
    case MEMCPY: return version() >= 130400 ? 112 : version() >= 26 ? 96 : 88;
    case MEMSET: return version() >= 130400 ? 104 : 88;
    case DRIVER: case RUNTIME: return 40;
    case KERNEL: return version() >= 130400 ? 248 : version() >= 130300 ? 232 : version() >= 130100 ? 224 :
                        version() >= 130000 ? 216 : 208;
    case OVERHEAD: return version() >= 22 ? 56 : 40;
    case SYNC: return version() >= 26 ? 56 : 40;
    case GRAPH_TRACE: return version() >= 22 ? 56 : 48;
    case EXTERNAL: return 24;
    default: return 0;
  }
}

/* --- what a collector calls --- */

int cuptiGetVersion(uint32_t *number) { *number = version(); return 0; }
int cuptiGetResultString(int result, const char **text) {
  *text = result == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_FAKE";
  return 0;
}
int cuptiGetTimestamp(uint64_t *at) {
  *at = ticks("stuck") ? 1 : ticks("clock") ? realtime() * 3 : realtime();
  return 0;
}
int cuptiSubscribe(void **subscriber, void *callback, void *user) {
  (void)user;
  int error = (int)number("FAKE_CUPTI_SUBSCRIBE", 0);
  if (error) return error;
  if (subscribed || getenv("FAKE_CUPTI_HOLDER")) return 39;
  subscribed = 1, subscriptions++;
  called_back = (void (*)(void *, uint32_t, uint32_t, const void *))callback;
  gone = 0;
  *subscriber = &subscribed;
  return 0;
}
struct params { size_t bytes; const char *name; char *old_name; size_t old_bytes; };
int cuptiSubscribe_v2(void **subscriber, void *callback, void *user, struct params *params) {
  int result = cuptiSubscribe(subscriber, callback, user);
  const char *holder = getenv("FAKE_CUPTI_HOLDER");
  if (result == 39 && params->old_name) snprintf(params->old_name, params->old_bytes, "CUPTI for %s", holder ? holder : "itself");
  return result;
}
int cuptiUnsubscribe(void *subscriber) { (void)subscriber; subscribed = 0; domains = 0; return 0; }
int cuptiEnableDomain(uint32_t on, void *subscriber, uint32_t domain) {
  (void)subscriber;
  if (gone) return 1;
  uint32_t before = calls_told;
  domains = on ? domains | 1u << domain : domains & ~(1u << domain);
  while (on && domain == 2 && getenv("FAKE_CUPTI_NEXT_CALL") && calls_told == before) usleep(100);
  return 0;
}
int cuptiFinalize(void) {
  int error = (int)number("FAKE_CUPTI_FINALIZE", 0);
  if (error) return error;
  gone = 1;
  subscribed = 0;
  domains = 0;
  requested = NULL;
  completed = NULL;
  return 0;
}
int cuptiActivityRegisterCallbacks(requested_fn request, completed_fn complete) { requested = request; completed = complete; return 0; }
int cuptiActivityEnable(uint32_t kind) {
  int error = kind == KERNEL ? (int)number("FAKE_CUPTI_NO_KERNELS", 0) : 0;
  if (!error) enabled[kind] = 1;
  return error;
}
int cuptiActivityDisable(uint32_t kind) { enabled[kind] = 0; return finalized ? 15 : 0; }
int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id) {
  if (kind != 5 || externals == 64) return 1;
  external[externals++] = id;
  return 0;
}
int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *last) {
  if (kind != 5 || externals == 0) return 18;
  *last = external[--externals];
  return 0;
}
int cuptiActivitySetAttribute(uint32_t attribute, size_t *bytes, void *value) { (void)attribute; (void)bytes; (void)value; return 0; }
int cuptiSetThreadIdType(uint32_t type) { (void)type; return 0; }
int cuptiGetCallbackName(uint32_t domain, uint32_t id, const char **name) {
  static const struct { uint32_t domain, id; const char *name; } names[] = {
      {2, 211, "cudaLaunchKernel_v7000"}, {2, 31, "cudaMemcpyAsync_ptsz_v7000"}, {2, 17, "cudaGetDevice_v3020"},
      {2, 165, "cudaDeviceSynchronize_v3020"}, {1, 307, "cuLaunchKernel"}, {1, 514, "cuGraphLaunch"}, {1, 5, "cuCtxGetCurrent"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].domain == domain && names[i].id == id) { *name = names[i].name; return 0; }
  return 1;
}
int cuptiActivityGetNextRecord(uint8_t *from, size_t valid, uint8_t **record) {
  uint8_t *next = *record ? *record + size_of(*(uint32_t *)*record) : from;
  if (next >= from + valid || size_of(*(uint32_t *)next) == 0) return 12;
  *record = next;
  return 0;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
  (void)context; (void)stream;
  *count = dropped;
  dropped = 0;
  return 0;
}

static void complete(void) {
  uint8_t *full = buffer;
  size_t bytes = room, valid = used;
  buffer = NULL;
  room = used = 0, unfinished = 0;
  if (full) completed(NULL, 0, full, bytes, valid);
}
static void complete_hoard(void) {
  for (uint32_t i = 0; i < hoarded; i++) completed(NULL, 0, hoard[i].at, hoard[i].room, hoard[i].used);
  hoarded = 0;
}
static void *complete_elsewhere(void *nothing) { complete(); return nothing; }
static void hand_over(void) {
  pthread_t thread;
  if (number("FAKE_CUPTI_HOARD", 0) && buffer && hoarded < 256) {
    hoard[hoarded].at = buffer, hoard[hoarded].room = room, hoard[hoarded++].used = used;
    buffer = NULL;
    room = used = 0;
    return;
  }
  if (!number("FAKE_CUPTI_THREAD", 0)) { complete(); return; }
  pthread_create(&thread, NULL, complete_elsewhere, NULL);
  pthread_join(thread, NULL);
}
int cuptiActivityFlushAll(uint32_t flags) {
  pthread_mutex_lock(&lock);
  flushes++;
  forced += flags == 1;
  if (flags == 1 || (!unfinished && !number("FAKE_CUPTI_HOARD", 0))) hand_over();
  if (flags == 1) complete_hoard();
  pthread_mutex_unlock(&lock);
  return (int)number("FAKE_CUPTI_FLUSH", 0);
}

/* --- what a CUDA program does --- */

static uint8_t *record(uint32_t kind) {
  size_t records;
  if (!enabled[kind]) return NULL;
  if (buffer && used + size_of(kind) > room) hand_over();
  if (!buffer) requested(&buffer, &room, &records);
  if (!buffer) { dropped++; return NULL; }
  uint8_t *at = buffer + used;
  used += size_of(kind);
  *(uint32_t *)at = kind;
  return at;
}
static void put32(uint8_t *at, size_t offset, uint32_t value) { memcpy(at + offset, &value, 4); }
static void put64(uint8_t *at, size_t offset, uint64_t value) { memcpy(at + offset, &value, 8); }

static void call_record(uint32_t domain, uint32_t id, uint64_t start, uint64_t end) {
  uint8_t *at = externals ? record(EXTERNAL) : NULL;
  if (at) { put32(at, 4, 5); put64(at, 8, external[externals - 1]); put32(at, 16, correlation); }
  at = record(domain == 1 ? DRIVER : RUNTIME);
  if (!at) return;
  put32(at, 4, id); put64(at, 8, scaled(start)); put64(at, 16, scaled(end));
  put32(at, 28, (uint32_t)syscall(SYS_gettid)); put32(at, 32, correlation);
  put32(at, 36, (uint32_t)returns);
}
static void kernel_record(const char *name, uint32_t stream, uint64_t start, uint64_t end) {
  uint8_t *at = record(KERNEL);
  if (!at) return;
  at[6] = 32;
  put64(at, 16, scaled(start)); put64(at, 24, scaled(end)); put32(at, 40, 1); put32(at, 44, 7); put32(at, 48, stream);
  put32(at, 52, 80); put32(at, 56, 2); put32(at, 60, 1); put32(at, 64, 256); put32(at, 68, 1); put32(at, 72, 1);
  put32(at, 76, 1024); put32(at, 80, 512); put32(at, 92, correlation);
  memcpy(at + 104, &name, 8);
}

static void call_back(uint32_t domain, uint32_t id) {
  uint32_t site = 0;
  for (; site < 2 && domains & 1u << domain; site++) called_back(NULL, domain, id, &site);
  calls_told += site == 2;
}

uint32_t fake_launch(const char *name, uint32_t stream, uint32_t times) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < times; i++) {
    uint64_t start = now(), end = now();
    correlation++;
    call_record(2, 211, start, end);
    kernel_record(name, stream, end + 1000, end + 21000);
  }
  uint32_t last = correlation;
  pthread_mutex_unlock(&lock);
  call_back(2, 211);
  return last;
}
/* A graph: its nodes share the correlation id of the call that launched it. */
void fake_graph(const char *name, uint32_t stream, uint32_t nodes) {
  pthread_mutex_lock(&lock);
  uint64_t start = now(), end = now();
  correlation++;
  call_record(1, 514, start, end);
  for (uint32_t i = 0; i < nodes; i++) kernel_record(name, stream, end + 1000 + i, end + 2000 + i);
  pthread_mutex_unlock(&lock);
}
/* A buffer that CUPTI has handed over elsewhere; pointers in it are of this process. 0: there is no room for it. */
int fake_replay(const uint8_t *recorded, size_t bytes) {
  size_t records;
  int fits;
  pthread_mutex_lock(&lock);
  hand_over();
  requested(&buffer, &room, &records);
  fits = buffer && bytes <= room;
  if (fits) memcpy(buffer, recorded, bytes), used = bytes;
  hand_over();
  pthread_mutex_unlock(&lock);
  return fits;
}
void fake_unfinished(const char *name) {
  pthread_mutex_lock(&lock);
  correlation++;
  kernel_record(name, 7, now(), 0);
  unfinished = 1;
  pthread_mutex_unlock(&lock);
}
/* The last kernel that was unfinished ends now. */
void fake_finish(void) {
  pthread_mutex_lock(&lock);
  for (uint8_t *at = NULL; buffer && cuptiActivityGetNextRecord(buffer, used, &at) == 0;)
    if (*(uint32_t *)at == KERNEL && *(uint64_t *)(at + 24) == 0) put64(at, 24, scaled(now()));
  unfinished = 0;
  pthread_mutex_unlock(&lock);
}
/* Calls return that from now on. */
void fake_returns(int error) { returns = error; }
/* A kernel whose timestamps CUPTI had no room for. */
void fake_timeless(const char *name) {
  pthread_mutex_lock(&lock);
  correlation++;
  kernel_record(name, 7, 0, 0);
  pthread_mutex_unlock(&lock);
}
/* Kernels of a module that is unloaded before their records are handed over. */
void fake_unload(uint32_t times) {
  char *module = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(module, 'k', 4096);                /* a name that goes on in the next page, */
  strcpy(module + 4096, "_of_two_pages");
  munmap(module + 4096, 4096);              /* and one of which only the beginning is left */
  fake_launch(module + 1, 7, times);
  fake_launch(module + 4096, 7, times);
}
/* CUPTI itself had no room. */
void fake_drop(uint32_t records) { pthread_mutex_lock(&lock); dropped += records; pthread_mutex_unlock(&lock); }
/* The system's clock is set. */
void fake_set_clock(uint64_t ns) { ahead += ns; }
/* Another tool begins in this process. */
static void their_request(uint8_t **at, size_t *bytes, size_t *records) { *at = NULL; *bytes = *records = 0; }
static void their_complete(void *context, uint32_t stream, uint8_t *at, size_t bytes, size_t valid) {
  (void)context; (void)stream; (void)at; (void)bytes; (void)valid;
}
void fake_take_over(void) { cuptiActivityRegisterCallbacks(their_request, their_complete); }
void fake_finalize(void) { finalized = 1; memset(enabled, 0, sizeof enabled); }
/* CUPTI's own thread hands a buffer over when the process is nearly gone. */
static void complete_at_exit(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, complete_elsewhere, NULL);
  pthread_join(thread, NULL);
}
void fake_exit_late(void) { atexit(complete_at_exit); }
void fake_call(uint32_t domain, uint32_t id) {
  pthread_mutex_lock(&lock);
  uint64_t start = now(), end = now();
  correlation++;
  call_record(domain, id, start, end);
  pthread_mutex_unlock(&lock);
}
void fake_copy(uint32_t kind, uint64_t bytes) {
  pthread_mutex_lock(&lock);
  uint64_t start = now(), end = now();
  correlation++;
  call_record(2, 31, start, end);
  uint8_t *at = record(MEMCPY);
  if (at) {
    at[4] = (uint8_t)kind;
    put64(at, 8, bytes); put64(at, 16, scaled(start + 4000)); put64(at, 24, scaled(start + 9000));
    put32(at, 32, 1); put32(at, 36, 7); put32(at, 40, 7); put32(at, 44, correlation);
  }
  pthread_mutex_unlock(&lock);
}
void fake_memset(uint64_t bytes) {
  pthread_mutex_lock(&lock);
  uint64_t start = now();
  correlation++;
  uint8_t *at = record(MEMSET);
  if (at) {
    put64(at, 8, bytes); put64(at, 16, scaled(start)); put64(at, 24, scaled(start + 2000));
    put32(at, 32, 1); put32(at, 36, 7); put32(at, 40, 7); put32(at, 44, correlation);
  }
  pthread_mutex_unlock(&lock);
}
void fake_sync(uint32_t type) {
  pthread_mutex_lock(&lock);
  uint64_t start = now();
  correlation++;
  uint8_t *at = record(SYNC);
  if (at) { put32(at, 4, type); put64(at, 8, scaled(start)); put64(at, 16, scaled(start + 100)); put32(at, 24, correlation); put32(at, 28, 7); put32(at, 32, 7); }
  pthread_mutex_unlock(&lock);
}
void fake_full(void) { pthread_mutex_lock(&lock); hand_over(); pthread_mutex_unlock(&lock); }
int fake_state(int what) { return what == 0 ? subscribed : what == 1 ? flushes : what == 2 ? forced : what == 3 ? (int)externals : what == 4 ? gone : what == 5 ? (int)domains : what == 6 ? subscriptions : enabled[what - 100]; }

/* --- for bench/: what the least work on the same buffer costs --- */

static struct { uint64_t start, end; uint32_t kind, correlation, stream, name; } out[1 << 16];

static double seconds(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}
/* Records of the buffer that is being filled. */
uint32_t fake_waiting(void) {
  uint32_t count = 0;
  for (uint8_t *at = NULL; buffer && cuptiActivityGetNextRecord(buffer, used, &at) == 0;) count++;
  return count;
}
/* ns to walk them and keep 32 bytes of each. */
double fake_bare_walk_ns(void) {
  uint32_t n = 0;
  double from = seconds();
  for (uint8_t *at = NULL; cuptiActivityGetNextRecord(buffer, used, &at) == 0; n = (n + 1) & 0xffff) {
    uint32_t kind = *(uint32_t *)at;
    size_t times = kind == KERNEL ? 16 : 8;
    memcpy(&out[n].start, at + times, 16);
    out[n].kind = kind;
    memcpy(&out[n].correlation, at + (kind == KERNEL ? 92 : 32), 4);
    if (kind == KERNEL) {
      const char *name;
      uint32_t hash = 0;
      memcpy(&out[n].stream, at + 48, 4);
      memcpy(&name, at + 104, 8);
      while (*name) hash = hash * 31 + (unsigned char)*name++;
      out[n].name = hash;
    }
  }
  return (seconds() - from) * 1e9;
}
/* ns that the collector takes for them. */
double fake_complete_ns(void) {
  double from = seconds();
  complete();
  return (seconds() - from) * 1e9;
}
