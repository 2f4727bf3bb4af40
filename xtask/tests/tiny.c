/* Stands in for the static library of all shims: what vgpu-abi defines for stubs, one name that a library
 * implements, and one helper. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

struct record {
    unsigned logged;
    int status;
    int stub;
};

static void log_once(struct record *record)
{
    Dl_info found;
    if (record->logged++) return;
    if (dladdr((char *)record + record->stub, &found)) fprintf(stderr, "stub %s\n", found.dli_sname);
}

int vgpu_stub_status(struct record *record)
{
    log_once(record);
    return record->status;
}

/* Leaves the vector registers as no caller may rely on them. */
unsigned long vgpu_stub_zero(struct record *record)
{
    log_once(record);
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n\tmovdqa %%xmm0, %%xmm1" ::: "xmm0", "xmm1");
    return 0;
}

int tinyHelper(void) { return 5; }

int tiny_tinyDone(void) { return tinyHelper() - 5; }
