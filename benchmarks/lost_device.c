// gcc -shared -fPIC -O1 -o lost.so lost_device.c -ldl
// With LD_PRELOAD=./lost.so LOST_AFTER=N: vkQueueSubmit says VK_ERROR_DEVICE_LOST from the LOST_AFTER-th call on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void (*fn)(void);
typedef int (*submit_t)(void *, unsigned, const void *, void *);
static submit_t real;
static int calls;
static int lost(void *q, unsigned n, const void *s, void *f) {
    const char *a = getenv("LOST_AFTER");
    int limit = a ? atoi(a) : 1 << 30;
    if (++calls > limit) { if (calls == limit + 1) fprintf(stderr, "shim: the device is lost\n"); return -4; }
    return real(q, n, s, f);
}
static fn wrap(const char *name, fn f) {
    if (f && strcmp(name, "vkQueueSubmit") == 0) { real = (submit_t) f; return (fn) lost; }
    return f;
}
fn vkGetDeviceProcAddr(void *d, const char *name) {
    static fn (*next)(void *, const char *);
    if (!next) next = (fn (*)(void *, const char *)) dlsym(RTLD_NEXT, "vkGetDeviceProcAddr");
    if (!next) { void *h = dlopen("libvulkan.so.1", RTLD_NOW); next = (fn (*)(void *, const char *)) dlsym(h, "vkGetDeviceProcAddr"); }
    return wrap(name, next(d, name));
}
fn vkGetInstanceProcAddr(void *i, const char *name) {
    static fn (*next)(void *, const char *);
    if (!next) next = (fn (*)(void *, const char *)) dlsym(RTLD_NEXT, "vkGetInstanceProcAddr");
    if (!next) { void *h = dlopen("libvulkan.so.1", RTLD_NOW); next = (fn (*)(void *, const char *)) dlsym(h, "vkGetInstanceProcAddr"); }
    if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (fn) vkGetDeviceProcAddr;
    return wrap(name, next(i, name));
}
int vkQueueSubmit(void *q, unsigned n, const void *s, void *f) {
    if (!real) real = (submit_t) dlsym(RTLD_NEXT, "vkQueueSubmit");
    return lost(q, n, s, f);
}
