/* A libnvidia-ml.so.1 of two GPUs for machines without a driver. The second has no power meter; FAKE_NVML_LOST=1 loses
 * it. What nvidia-ml-py calls, with the values that the tests expect. */
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned index; } device;
static device devices[2] = {{0}, {1}};

int nvmlInitWithFlags(unsigned flags) { (void)flags; return getenv("FAKE_NVML_NO_DRIVER") ? 9 : 0; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "Not Supported"; }
int nvmlSystemGetDriverVersion(char *to, unsigned room) { strncpy(to, "580.65.06", room); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **which) {
  *which = &devices[index];
  return index == 1 && getenv("FAKE_NVML_LOST") ? 15 : 0;
}
int nvmlDeviceGetUUID(device *which, char *to, unsigned room) {
  strncpy(to, which->index ? "GPU-b" : "GPU-a", room);
  return 0;
}
int nvmlDeviceGetName(device *which, char *to, unsigned room) { (void)which; strncpy(to, "Fake H100", room); return 0; }
int nvmlDeviceGetUtilizationRates(device *which, unsigned rates[2]) { rates[0] = 75 - which->index; rates[1] = 20; return 0; }
int nvmlDeviceGetMemoryInfo(device *which, unsigned long long memory[3]) {
  (void)which;
  memory[0] = 80ull << 30; memory[1] = 60ull << 30; memory[2] = 20ull << 30;  /* total, free, used */
  return 0;
}
int nvmlDeviceGetClockInfo(device *which, unsigned clock, unsigned *mhz) { (void)which; *mhz = clock == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetPowerUsage(device *which, unsigned *milliwatts) { *milliwatts = 350500; return which->index ? 3 : 0; }
int nvmlDeviceGetTemperature(device *which, unsigned sensor, unsigned *celsius) { (void)which; (void)sensor; *celsius = 61; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(device *which, unsigned long long *reasons) {
  *reasons = which->index ? 0x1 : 0x4 | 0x40;
  return 0;
}
