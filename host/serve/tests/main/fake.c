/* Stands in for libcuda.so.1, libnvidia-ml.so.1 and libcublas.so: what it answers is in the environment.
 * FAKE_CUINIT: what cuInit returns, or hang, or crash. FAKE_CUDA: cuDriverGetVersion. FAKE_NVML: what nvmlInit_v2
 * returns. FAKE_GPUS: how many GPUs. FAKE_MODE, FAKE_PERSISTENCE, FAKE_MIG (0, 1, none), FAKE_INSTANCES. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int number(const char *name, int usual)
{
    const char *text = getenv(name);
    return text ? atoi(text) : usual;
}

#ifdef CUDA
int cuInit(unsigned flags)
{
    const char *what = getenv("FAKE_CUINIT");
    if (what && !strcmp(what, "hang"))
        for (;;)
            pause();
    if (what && !strcmp(what, "crash"))
        abort();
    return flags ? 1 : number("FAKE_CUINIT", 0);
}
int cuDriverGetVersion(int *version)
{
    *version = number("FAKE_CUDA", 13000);
    return 0;
}
#endif

#ifdef NVML
/* Handles: 1 + index of the GPU; instances: 100 + place. */
int nvmlInit_v2(void) { return number("FAKE_NVML", 0); }
int nvmlSystemGetDriverVersion(char *text, unsigned bytes)
{
    snprintf(text, bytes, "580.65.06");
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = number("FAKE_GPUS", 1);
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(long)(index + 1);
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned bytes)
{
    long id = (long)device;
    snprintf(text, bytes, "%s-00112233-4455-6677-8899-aabbccdd%04lx", id >= 100 ? "MIG" : "GPU", id);
    return 0;
}
int nvmlDeviceGetName(void *device, char *text, unsigned bytes)
{
    snprintf(text, bytes, "Fake %ld", (long)device);
    return 0;
}
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    memory->total = ((long)device >= 100 ? 10ull : 80ull) << 30;
    return 0;
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; };
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
    pci->domain = 0;
    pci->bus = 0xa0 + (unsigned)(long)device;
    pci->device = 0;
    return 0;
}
int nvmlDeviceGetComputeMode(void *device, unsigned *mode)
{
    *mode = number("FAKE_MODE", 0);
    return device == 0;
}
int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode)
{
    *mode = number("FAKE_PERSISTENCE", 1);
    return device == 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    if (!getenv("FAKE_MIG"))
        return 3; /* NVML_ERROR_NOT_SUPPORTED */
    *current = *pending = number("FAKE_MIG", 0);
    return device == 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
    *count = 7;
    return device == 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance)
{
    if ((int)index >= number("FAKE_INSTANCES", 0))
        return 6; /* NVML_ERROR_NOT_FOUND */
    *instance = (void *)(long)(100 + index);
    return device == 0;
}
#endif

#ifdef CUBLAS
int cublasCreate_v2(void **handle)
{
    *handle = 0;
    return 1;
}
#endif
