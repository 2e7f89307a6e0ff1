// Test double of libamdhip64.so.7 on ordinary memory: what the MIGraphX provider calls, and no more.
#include <stdlib.h>
#include <string.h>
typedef int hipError_t;
static int current = 0;
static int devices(void) { const char* n = getenv("FAKE_NDEV"); return n ? atoi(n) : 1; }
hipError_t hipGetDeviceCount(int* n) { *n = devices(); return devices() ? 0 : 100; }
hipError_t hipGetDevice(int* d) { *d = current; return 0; }
hipError_t hipSetDevice(int d) { current = d; return d < devices() ? 0 : devices() ? 101 : 100; }
hipError_t hipGetDevicePropertiesR0600(void* p, int d) {
  const char* gfx = getenv("FAKE_GFX");
  memset(p, 0, 1472);
  strcpy((char*)p, "Fake RX 9070");
  strcpy((char*)p + 1160, gfx ? gfx : "gfx1201");
  return d < devices() ? 0 : 101;
}
const char* hipGetErrorString(hipError_t e) {
  return e == 100 ? "no ROCm-capable device is detected" : e == 101 ? "invalid device ordinal" : "fake";
}
hipError_t hipGetLastError(void) { return 0; }
hipError_t hipMalloc(void** p, size_t n) { *p = malloc(n ? n : 1); return *p ? 0 : 2; }
hipError_t hipHostMalloc(void** p, size_t n, unsigned f) { return hipMalloc(p, n); }
hipError_t hipFree(void* p) { free(p); return 0; }
hipError_t hipHostFree(void* p) { free(p); return 0; }
hipError_t hipMemcpy(void* d, const void* s, size_t n, int k) { memcpy(d, s, n); return 0; }
hipError_t hipMemcpyAsync(void* d, const void* s, size_t n, int k, void* q) { memcpy(d, s, n); return 0; }
hipError_t hipMemcpyWithStream(void* d, const void* s, size_t n, int k, void* q) { memcpy(d, s, n); return 0; }
hipError_t hipDeviceSynchronize(void) { return 0; }
hipError_t hipEventCreateWithFlags(void** e, unsigned f) { *e = malloc(8); return 0; }
hipError_t hipEventDestroy(void* e) { free(e); return 0; }
hipError_t hipEventRecord(void* e, void* q) { return 0; }
hipError_t hipEventSynchronize(void* e) { return 0; }
hipError_t hipLaunchHostFunc(void* q, void (*f)(void*), void* u) { f(u); return 0; }
hipError_t hipStreamCreateWithFlags(void** q, unsigned f) { *q = malloc(8); return 0; }
hipError_t hipStreamDestroy(void* q) { free(q); return 0; }
hipError_t hipStreamQuery(void* q) { return 0; }
hipError_t hipStreamSynchronize(void* q) { return 0; }
hipError_t hipStreamWaitEvent(void* q, void* e, unsigned f) { return 0; }
