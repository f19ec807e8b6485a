/* A stand-in for libnvidia-ml.so.1: two GPUs; every call adds its name to the file that FAKE_NVML_LOG names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int told(const char *name) {
    FILE *log = fopen(getenv("FAKE_NVML_LOG"), "a");
    fprintf(log, "%s\n", name);
    fclose(log);
    return 0;
}
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define SECOND ((void *)0x22)

int nvmlInit_v2(void) { return told("nvmlInit_v2"); }
int nvmlShutdown(void) { return told("nvmlShutdown"); }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    told("nvmlDeviceGetHandleByUUID");
    *handle = SECOND;
    return strcmp(uuid, "GPU-12345678-aaaa-bbbb-cccc-000000000002") ? NOT_FOUND : 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **handle) {
    told("nvmlDeviceGetHandleByPciBusId_v2");
    *handle = SECOND;
    return strcmp(pci, "00000000:4F:00.0") ? NOT_FOUND : 0;
}
int nvmlDeviceGetClockInfo(void *handle, unsigned type, unsigned *mhz) {
    *mhz = handle == SECOND && type == 1 ? 1755 : handle == SECOND && type == 2 ? 2619 : 0;
    return told("nvmlDeviceGetClockInfo");
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    *milliwatts = 612500;
    return told("nvmlDeviceGetPowerUsage");
}
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) {
    told("nvmlDeviceGetEnforcedPowerLimit");
    return NOT_SUPPORTED;
}
int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
    *celsius = sensor == 0 ? 61 : 0;
    return told("nvmlDeviceGetTemperature");
}
#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    *reasons = 0x8;
    return told("nvmlDeviceGetCurrentClocksThrottleReasons");
}
#else
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    *reasons = 0x4 | 0x20;
    return told("nvmlDeviceGetCurrentClocksEventReasons");
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    rates[0] = 100;
    rates[1] = 37;
    return told("nvmlDeviceGetUtilizationRates");
}
#endif
/* What must never be called. */
int nvmlDeviceSetGpuLockedClocks(void *handle, unsigned least, unsigned most) { return told("nvmlDeviceSetGpuLockedClocks"); }
int nvmlDeviceSetPowerManagementLimit(void *handle, unsigned milliwatts) { return told("nvmlDeviceSetPowerManagementLimit"); }
int nvmlDeviceResetGpuLockedClocks(void *handle) { return told("nvmlDeviceResetGpuLockedClocks"); }
