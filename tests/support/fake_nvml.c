/* A libnvidia-ml.so.1 of two GPUs for machines without a driver. The second has no power meter and no GPM;
 * FAKE_NVML_LOST=1 loses it, =late while it is asked, FAKE_NVML_MIG=1 gives it one instance, second of two places. FAKE_NVML_PIDS names a file
 * with the pids that compute on the first. What nvidia-ml-py calls, with the values that the tests expect. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned index; } device;
static device devices[2] = {{0}, {1}};
static device instance = {2};

int nvmlInitWithFlags(unsigned flags) { (void)flags; return getenv("FAKE_NVML_NO_DRIVER") ? 9 : 0; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "Not Supported"; }
int nvmlSystemGetDriverVersion(char *to, unsigned room) { strncpy(to, "580.65.06", room); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **which) {
  *which = &devices[index];
  const char *lost = getenv("FAKE_NVML_LOST");
  return index == 1 && lost && strcmp(lost, "late") ? 15 : 0;
}
int nvmlDeviceGetUUID(device *which, char *to, unsigned room) {
  strncpy(to, which == &instance ? "MIG-b1" : which->index ? "GPU-b" : "GPU-a", room);
  return 0;
}
int nvmlDeviceGetName(device *which, char *to, unsigned room) { (void)which; strncpy(to, "Fake H100", room); return 0; }
int nvmlDeviceGetUtilizationRates(device *which, unsigned rates[2]) { rates[0] = 75 - which->index; rates[1] = 20; return 0; }
int nvmlDeviceGetMemoryInfo(device *which, unsigned long long memory[3]) {
  memory[0] = 80ull << 30; memory[1] = 60ull << 30; memory[2] = 20ull << 30;  /* total, free, used */
  if (which == &instance) memory[0] = 10ull << 30, memory[1] = 6ull << 30, memory[2] = 4ull << 30;
  return 0;
}
int nvmlDeviceGetClockInfo(device *which, unsigned clock, unsigned *mhz) { (void)which; *mhz = clock == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetPowerUsage(device *which, unsigned *milliwatts) { *milliwatts = 350500; return which->index ? 3 : 0; }
int nvmlDeviceGetTemperature(device *which, unsigned sensor, unsigned *celsius) { (void)which; (void)sensor; *celsius = 61; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(device *which, unsigned long long *reasons) {
  *reasons = which->index ? 0x1 : 0x4 | 0x40;
  return 0;
}
int nvmlDeviceGetMinorNumber(device *which, unsigned *minor) { *minor = which->index; return 0; }

/* --- processes: pid, 4 bytes of nothing, bytes, GPU instance, compute instance (nvmlProcessInfo_v2_t) --- */
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
int nvmlDeviceGetComputeRunningProcesses_v3(device *which, unsigned *count, process *to) {
  const char *path = which->index ? NULL : getenv("FAKE_NVML_PIDS");
  FILE *file = path ? fopen(path, "r") : NULL;
  unsigned found = 0, pid;
  while (file && fscanf(file, "%u", &pid) == 1) {
    if (to && found < *count) to[found] = (process){pid, 3ull << 30, ~0u, ~0u};
    found++;
  }
  if (file) fclose(file);
  const int short_of_room = found > (to ? *count : 0);
  *count = found;
  return short_of_room ? 7 : 0;
}

/* --- MIG --- */
static int has_mig(device *which) { return which == &devices[1] && getenv("FAKE_NVML_MIG"); }
int nvmlDeviceGetMigMode(device *which, unsigned *now, unsigned *pending) {
  *now = *pending = has_mig(which) ? 1 : 0;
  const char *lost = getenv("FAKE_NVML_LOST");
  return !which->index ? 3 : lost && !strcmp(lost, "late") ? 15 : 0;
}
int nvmlDeviceGetMaxMigDeviceCount(device *which, unsigned *count) { *count = has_mig(which) ? 2 : 0; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *which, unsigned index, device **to) {
  *to = &instance;
  return has_mig(which) && index == 1 ? 0 : 6;
}
int nvmlDeviceGetGpuInstanceId(device *which, unsigned *id) { *id = 5; return which == &instance ? 0 : 3; }

/* --- GPM: a sample is the number of samples there were --- */
typedef struct { unsigned version, supported; } gpm_support;
typedef struct { unsigned id; int result; double value; const char *words[3]; } gpm_metric;
typedef struct { unsigned version, count; unsigned *before, *after; gpm_metric metrics[1]; } gpm_question;
static unsigned gpm_samples, gpm_held;
int nvmlGpmQueryDeviceSupport(device *which, gpm_support *to) {
  to->supported = which->index == 0 || getenv("FAKE_NVML_MIG") != NULL;
  return 0;
}
int nvmlGpmSampleAlloc(unsigned **to) { *to = calloc(1, sizeof **to); gpm_held++; return 0; }
int nvmlGpmSampleFree(unsigned *sample) { free(sample); gpm_held--; return 0; }
int nvmlGpmSampleGet(device *which, unsigned *sample) {
  *sample = ++gpm_samples;
  return which->index && !getenv("FAKE_NVML_MIG") ? 3 : getenv("FAKE_NVML_NO_GPM") ? 4 : 0;
}
int nvmlGpmMigSampleGet(device *which, unsigned id, unsigned *sample) { *sample = ++gpm_samples; return id == 5 && which->index ? 0 : 2; }
int nvmlGpmMetricsGet(gpm_question *asked) {
  if (asked->version != 1 || *asked->after <= *asked->before) return 2;
  for (unsigned i = 0; i < asked->count; i++) {
    gpm_metric *one = &asked->metrics[i];
    one->result = one->id == 11 ? 3 : 0; /* no FP64 */
    one->value = one->id == 20 ? 2.0 : one->id == 10 ? nan("") : one->id; /* MiB/s; no DRAM at all; a percentage */
  }
  return 0;
}
unsigned fake_gpm_held(void) { return gpm_held; }
