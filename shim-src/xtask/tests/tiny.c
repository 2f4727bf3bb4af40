/* Stands in for a shim's static library: what vgpu-abi defines for stubs, one implemented name, one helper. */
#include <stdio.h>

struct record {
    unsigned logged;
    int status;
    const char *name;
};

static void log_once(struct record *record)
{
    if (!record->logged++) fprintf(stderr, "stub %s\n", record->name);
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

int tinyDone(void) { return tinyHelper() - 5; }
