/* Asks NVML what a query tool asks - driver, and of each device name, UUID, PCI address, memory, processes - prints it
 * as `# key: value`, and checks it: against CUDA, against the arguments, and for what wrong arguments and calls at the
 * wrong time answer. One line a check (TAP); exit code 0 when all held.
 *
 * Usage: nvml-query [devices=N] [name=NAME] [uuid=GPU-...] [pci=0000:00:05.0] [driver=580.65.06] [total=BYTES]
 * what is expected, of the first device. The libraries are found as a query tool finds them, by dlopen.
 * cc -o nvml-query nvml-query.c -ldl */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

typedef void *device;
typedef unsigned long long bytes;
struct memory {
    bytes total, free, used;
};
struct memory_v2 {
    unsigned version;
    bytes total, reserved, free, used;
};
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};
struct process_v1 {
    unsigned pid;
    bytes used;
};
struct process {
    unsigned pid;
    bytes used;
    unsigned gpu_instance, compute_instance;
};

enum { HELD = 16 << 20 };
enum { OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND = 6, SIZE, VERSION = 25 };

/* Every function of NVML that is called: X(name, parameters). */
#define NVML(X)                                                                                                    \
    X(nvmlInit, (void))                                                                                            \
    X(nvmlInit_v2, (void))                                                                                         \
    X(nvmlInitWithFlags, (unsigned))                                                                               \
    X(nvmlShutdown, (void))                                                                                        \
    X(nvmlSystemGetDriverVersion, (char *, unsigned))                                                              \
    X(nvmlSystemGetNVMLVersion, (char *, unsigned))                                                                \
    X(nvmlSystemGetCudaDriverVersion, (int *))                                                                     \
    X(nvmlSystemGetCudaDriverVersion_v2, (int *))                                                                  \
    X(nvmlSystemGetProcessName, (unsigned, char *, unsigned))                                                      \
    X(nvmlUnitGetCount, (unsigned *))                                                                              \
    X(nvmlGetExcludedDeviceCount, (unsigned *))                                                                    \
    X(nvmlDeviceGetCount, (unsigned *))                                                                            \
    X(nvmlDeviceGetCount_v2, (unsigned *))                                                                         \
    X(nvmlDeviceGetHandleByIndex, (unsigned, device *))                                                            \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned, device *))                                                         \
    X(nvmlDeviceGetHandleByUUID, (const char *, device *))                                                         \
    X(nvmlDeviceGetHandleByPciBusId, (const char *, device *))                                                     \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *, device *))                                                  \
    X(nvmlDeviceGetHandleBySerial, (const char *, device *))                                                       \
    X(nvmlDeviceGetIndex, (device, unsigned *))                                                                    \
    X(nvmlDeviceGetName, (device, char *, unsigned))                                                               \
    X(nvmlDeviceGetUUID, (device, char *, unsigned))                                                               \
    X(nvmlDeviceGetBrand, (device, unsigned *))                                                                    \
    X(nvmlDeviceGetArchitecture, (device, unsigned *))                                                             \
    X(nvmlDeviceGetDisplayActive, (device, unsigned *))                                                            \
    X(nvmlDeviceGetDisplayMode, (device, unsigned *))                                                              \
    X(nvmlDeviceIsMigDeviceHandle, (device, unsigned *))                                                           \
    X(nvmlDeviceGetMaxMigDeviceCount, (device, unsigned *))                                                        \
    X(nvmlDeviceGetMemoryInfo, (device, struct memory *))                                                          \
    X(nvmlDeviceGetMemoryInfo_v2, (device, struct memory_v2 *))                                                    \
    X(nvmlDeviceGetMemoryBusWidth, (device, unsigned *))                                                           \
    X(nvmlDeviceGetMaxClockInfo, (device, unsigned, unsigned *))                                                   \
    X(nvmlDeviceGetCudaComputeCapability, (device, int *, int *))                                                  \
    X(nvmlDeviceGetComputeMode, (device, unsigned *))                                                              \
    X(nvmlDeviceGetNumGpuCores, (device, unsigned *))                                                              \
    X(nvmlDeviceGetPciInfo, (device, struct pci *))                                                                \
    X(nvmlDeviceGetPciInfo_v2, (device, struct pci *))                                                             \
    X(nvmlDeviceGetPciInfo_v3, (device, struct pci *))                                                             \
    X(nvmlDeviceGetPciInfoExt, (device, unsigned *))                                                               \
    X(nvmlDeviceGetHandleByUUIDV, (const unsigned *, device *))                                                    \
    X(nvmlDeviceGetComputeRunningProcesses, (device, unsigned *, struct process_v1 *))                             \
    X(nvmlDeviceGetComputeRunningProcesses_v2, (device, unsigned *, struct process *))                             \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (device, unsigned *, struct process *))                             \
    X(nvmlDeviceGetGraphicsRunningProcesses, (device, unsigned *, struct process_v1 *))                            \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, (device, unsigned *, struct process *))                            \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, (device, unsigned *, struct process *))                            \
    X(nvmlDeviceGetMPSComputeRunningProcesses, (device, unsigned *, struct process_v1 *))                          \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2, (device, unsigned *, struct process *))                          \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, (device, unsigned *, struct process *))                          \
    X(nvmlDeviceGetTemperature, (device, unsigned, unsigned *))                                                    \
    X(nvmlDeviceGetPowerUsage, (device, unsigned *))                                                               \
    X(nvmlDeviceGetUtilizationRates, (device, unsigned *))

#define DECLARE(name, parameters) static int(*name) parameters;
NVML(DECLARE)
static const char *(*nvmlErrorString)(int);

static int load(void *library)
{
#define LOAD(name, parameters)                                                                                     \
    *(void **)&name = dlsym(library, #name);                                                                       \
    if (!name) {                                                                                                   \
        fprintf(stderr, "nvml-query: %s\n", dlerror());                                                            \
        return 0;                                                                                                  \
    }
    NVML(LOAD)
    LOAD(nvmlErrorString, )
    return 1;
}

/* The value of the argument `key=value`, or null. */
static const char *expected(int argc, char **argv, const char *key)
{
    size_t length = strlen(key);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], key, length) == 0 && argv[i][length] == '=')
            return argv[i] + length + 1;
    return NULL;
}

/* --- before and after ------------------------------------------------------------------------------ */

static void uninitialised(const char *when)
{
    char name[160], text[96];
    unsigned count = 77;
    int version;
    device found = NULL;
    struct memory memory;
#define CHECK(call) (snprintf(name, sizeof name, "%s: " #call, when), check(name, call, UNINITIALIZED))
    CHECK(nvmlDeviceGetCount(&count));
    CHECK(nvmlDeviceGetCount_v2(&count));
    CHECK(nvmlDeviceGetHandleByIndex_v2(0, &found));
    CHECK(nvmlDeviceGetHandleByUUID("GPU-0", &found));
    CHECK(nvmlDeviceGetHandleByPciBusId_v2("0000:00:05.0", &found));
    CHECK(nvmlDeviceGetName(NULL, text, sizeof text));
    CHECK(nvmlDeviceGetMemoryInfo(NULL, &memory));
    CHECK(nvmlSystemGetDriverVersion(text, sizeof text));
    CHECK(nvmlSystemGetCudaDriverVersion_v2(&version));
    CHECK(nvmlSystemGetProcessName((unsigned)getpid(), text, sizeof text));
#undef CHECK
    check("nothing is stored", count, 77);
}

static void at_exit(void)
{
    if (is_child)
        return;
    uninitialised("after exit began");
    check("after exit began: nvmlInit_v2", nvmlInit_v2(), UNINITIALIZED);
    check("after exit began: nvmlShutdown", nvmlShutdown(), OK);
    check_text("after exit began: nvmlErrorString", nvmlErrorString(1), "Uninitialized");
    if (finish() != 0)
        _exit(1);
}

/* --- what the driver says of itself ------------------------------------------------------------------ */

static void versions(const char *driver)
{
    char text[96], nvml[96], small[4];
    int version = 0, again = 0;
    unsigned count = 77;
    if (check("nvmlSystemGetDriverVersion", nvmlSystemGetDriverVersion(text, sizeof text), OK))
        printf("# driver: %s\n", text);
    if (driver)
        check_text("the driver is the device's", text, driver);
    check_true("a driver's version begins with a number and a dot", isdigit(text[0]) && strchr(text, '.'));
    check("nvmlSystemGetDriverVersion small", nvmlSystemGetDriverVersion(small, sizeof small), SIZE);
    check("nvmlSystemGetDriverVersion exact", nvmlSystemGetDriverVersion(nvml, (unsigned)strlen(text) + 1), OK);
    check("nvmlSystemGetDriverVersion null", nvmlSystemGetDriverVersion(NULL, 80), INVALID);
    if (check("nvmlSystemGetCudaDriverVersion_v2", nvmlSystemGetCudaDriverVersion_v2(&version), OK))
        printf("# cuda: %d.%d\n", version / 1000, version % 1000 / 10);
    check("nvmlSystemGetCudaDriverVersion", nvmlSystemGetCudaDriverVersion(&again), OK);
    check("both agree", again, version);
    check("nvmlSystemGetCudaDriverVersion null", nvmlSystemGetCudaDriverVersion(NULL), INVALID);
    if (check("nvmlSystemGetNVMLVersion", nvmlSystemGetNVMLVersion(nvml, sizeof nvml), OK))
        printf("# nvml: %s\n", nvml);
    check("NVML's version begins with CUDA's", atoi(nvml), version / 1000);
    check_text("NVML's version ends with the driver's", strchr(nvml, '.') ? strchr(nvml, '.') + 1 : NULL, text);
    check("nvmlSystemGetNVMLVersion small", nvmlSystemGetNVMLVersion(small, sizeof small), SIZE);
    check("nvmlSystemGetProcessName", nvmlSystemGetProcessName((unsigned)getpid(), text, sizeof text), OK);
    check_true("the name is this program's", strstr(text, program_invocation_short_name) != NULL);
    check("nvmlSystemGetProcessName crops", nvmlSystemGetProcessName((unsigned)getpid(), small, sizeof small), OK);
    check("the name is cropped", (long long)strlen(small), 3);
    check("nvmlSystemGetProcessName of none", nvmlSystemGetProcessName(0x7fffffff, text, sizeof text), NOT_FOUND);
    check("nvmlSystemGetProcessName null", nvmlSystemGetProcessName(1, NULL, 80), INVALID);
    check("nvmlSystemGetProcessName no room", nvmlSystemGetProcessName(1, text, 0), INVALID);
    check("nvmlUnitGetCount", nvmlUnitGetCount(&count), OK);
    check("no units", count, 0);
    check("nvmlGetExcludedDeviceCount", nvmlGetExcludedDeviceCount(&count), OK);
    check_text("nvmlErrorString", nvmlErrorString(9), "Driver Not Loaded");
    check_text("nvmlErrorString of none", nvmlErrorString(12345), "Unknown Error");
}

/* --- a device ---------------------------------------------------------------------------------------- */

/* The same device as CUDA has it. Its own order may differ, so it is looked for by its PCI address. */
static void compare(const struct pci *pci, const char *name, const char *uuid, bytes total)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = NULL, (*find)(int *, const char *) = NULL, (*get_name)(char *, int, int) = NULL;
    int (*get_uuid)(unsigned char *, int) = NULL, (*get_total)(size_t *, int) = NULL;
    int (*get_pci)(char *, int, int) = NULL, ordinal = -1;
    char text[256], short_pci[32];
    unsigned char raw[16];
    size_t size = 0;
    if (cuda) {
        *(void **)&init = dlsym(cuda, "cuInit");
        *(void **)&find = dlsym(cuda, "cuDeviceGetByPCIBusId");
        *(void **)&get_name = dlsym(cuda, "cuDeviceGetName");
        *(void **)&get_uuid = dlsym(cuda, "cuDeviceGetUuid_v2");
        *(void **)&get_total = dlsym(cuda, "cuDeviceTotalMem_v2");
        *(void **)&get_pci = dlsym(cuda, "cuDeviceGetPCIBusId");
    }
    if (!check_true("CUDA is there", init && find && get_name && get_uuid && get_total && get_pci))
        return;
    snprintf(short_pci, sizeof short_pci, "%04x:%02x:%02x.0", pci->domain, pci->bus, pci->device);
    int status = init(0);
    if (status != 0)
        check("cuInit: all devices are hidden", status, 100);
    if (status != 0 || find(&ordinal, short_pci) != 0) {
        skip("the device as CUDA has it", "it is hidden from CUDA");
        return;
    }
    check("cuDeviceGetName", get_name(text, sizeof text, ordinal), 0);
    check_text("name as CUDA's", name, text);
    check("cuDeviceGetUuid", get_uuid(raw, ordinal), 0);
    int length = snprintf(text, sizeof text, "GPU-");
    for (int i = 0; i < 16; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%02x",
                           i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", raw[i]);
    check_text("UUID as CUDA's", uuid, text);
    check("cuDeviceTotalMem", get_total(&size, ordinal), 0);
    check("memory as CUDA's", (long long)total, (long long)size);
    check("cuDeviceGetPCIBusId", get_pci(text, sizeof text, ordinal), 0);
    check_true("PCI address as CUDA's", strcasecmp(text, pci->legacy) == 0);
}

/* The function's folder in sysfs says which device it is. */
static void compare_sysfs(const struct pci *pci)
{
    const char *root = getenv("VGPU_SYSFS");
    static const char *const names[] = {"vendor", "device", "subsystem_vendor", "subsystem_device"};
    unsigned values[4] = {0};
    for (int i = 0; i < 4; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/bus/pci/devices/%04x:%02x:%02x.0/%s", root && *root ? root : "/sys", pci->domain,
                 pci->bus, pci->device, names[i]);
        FILE *file = fopen(path, "r");
        if (!check_true(names[i], file && fscanf(file, "%x", &values[i]) == 1))
            printf("# %s\n", path);
        if (file)
            fclose(file);
    }
    check("PCI id as in sysfs", pci->id, values[1] << 16 | values[0]);
    check("subsystem as in sysfs", pci->subsystem, values[3] << 16 | values[2]);
}

static void list(device gpu)
{
    struct process processes[64];
    unsigned count = 64;
    if (!check("nvmlDeviceGetComputeRunningProcesses_v3", nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, processes), OK))
        return;
    for (unsigned i = 0; i < count; i++) {
        char name[96] = "?";
        nvmlSystemGetProcessName(processes[i].pid, name, sizeof name);
        printf("# process: %u %s", processes[i].pid, name);
        if (processes[i].used == ~0ULL)
            printf(" memory unknown\n");
        else
            printf(" %llu bytes\n", processes[i].used);
    }
}

static int holds(device gpu, pid_t pid)
{
    struct process processes[64];
    unsigned count = 64;
    if (nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, processes) != OK)
        return -1;
    int found = 0;
    for (unsigned i = 0; i < count; i++)
        found += processes[i].pid == (unsigned)pid;
    return found;
}

static bytes used(device gpu)
{
    struct memory memory = {0, 0, 0};
    check("nvmlDeviceGetMemoryInfo", nvmlDeviceGetMemoryInfo(gpu, &memory), OK);
    return memory.used;
}

static void processes(device gpu, const char *self)
{
    struct process some[64], untouched;
    struct process_v1 old[64];
    unsigned count = 0;
    check("processes null", nvmlDeviceGetComputeRunningProcesses_v3(gpu, NULL, some), INVALID);
    check("a process that only looks is not listed", holds(gpu, getpid()), 0);
    memset(&untouched, 0xee, sizeof untouched);
    some[0] = untouched;
    count = 5;
    check("nvmlDeviceGetGraphicsRunningProcesses_v3", nvmlDeviceGetGraphicsRunningProcesses_v3(gpu, &count, some), OK);
    check("no graphics", count, 0);
    check("nvmlDeviceGetGraphicsRunningProcesses_v2", nvmlDeviceGetGraphicsRunningProcesses_v2(gpu, &count, some), OK);
    check("nvmlDeviceGetGraphicsRunningProcesses", nvmlDeviceGetGraphicsRunningProcesses(gpu, &count, old), OK);
    check("nvmlDeviceGetMPSComputeRunningProcesses_v3", nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu, &count, some), OK);
    check("nvmlDeviceGetMPSComputeRunningProcesses_v2", nvmlDeviceGetMPSComputeRunningProcesses_v2(gpu, &count, some), OK);
    check("nvmlDeviceGetMPSComputeRunningProcesses", nvmlDeviceGetMPSComputeRunningProcesses(gpu, &count, old), OK);
    check("an empty list stores nothing", memcmp(&some[0], &untouched, sizeof untouched), 0);
    count = 0;

    /* Another process, which this program's own copy is until its standard input ends. */
    int to[2], from[2];
    char line[8] = "";
    if (!check("pipes", pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0))
        return;
    bytes before = used(gpu);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        unsetenv("CUDA_VISIBLE_DEVICES");
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl("/proc/self/exe", self, "hold", (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    check_true("another process holds memory", read(from[0], line, sizeof line) == 6);
    check("another process is listed", holds(gpu, pid), 1);
    check("processes: how many", nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, NULL), SIZE);
    check_true("at least that one", count >= 1);
    count = 64;
    check("nvmlDeviceGetComputeRunningProcesses", nvmlDeviceGetComputeRunningProcesses(gpu, &count, old), OK);
    count = 64;
    check("nvmlDeviceGetComputeRunningProcesses_v2", nvmlDeviceGetComputeRunningProcesses_v2(gpu, &count, some), OK);
    check("the same process in both", old[0].pid, some[0].pid);
    list(gpu);
    check_true("its memory counts as used", used(gpu) >= before + HELD);
    close(to[1]);
    int status = -1;
    check("another process ends", waitpid(pid, &status, 0), pid);
    check("another process's exit code", status, 0);
    check("a process that has ended is not listed", holds(gpu, pid), 0);
    check("and its memory is free again", (long long)used(gpu), (long long)before);
    close(from[0]);
}

static bytes show(device gpu, char *name, char *uuid, struct pci *pci)
{
    struct memory memory = {0, 0, 0};
    check("nvmlDeviceGetName", nvmlDeviceGetName(gpu, name, 96), OK);
    check("nvmlDeviceGetUUID", nvmlDeviceGetUUID(gpu, uuid, 96), OK);
    check("nvmlDeviceGetPciInfo_v3", nvmlDeviceGetPciInfo_v3(gpu, pci), OK);
    check("nvmlDeviceGetMemoryInfo", nvmlDeviceGetMemoryInfo(gpu, &memory), OK);
    printf("# name: %s\n# uuid: %s\n# pci: %s\n", name, uuid, pci->text);
    printf("# memory: %llu MiB, free %llu MiB, used %llu MiB\n", memory.total >> 20, memory.free >> 20, memory.used >> 20);
    list(gpu);
    check_true("memory adds up", memory.total > 0 && memory.free + memory.used == memory.total);
    return memory.total;
}

static void one_device(device gpu, unsigned number, const char *self)
{
    char name[96], uuid[96], text[96], form[96];
    struct pci pci, old;
    struct memory_v2 memory = {0x02000028, 0, 9, 0, 0};
    unsigned value = 99, extended[16] = {0x01000040}, by_uuid[13] = {0x01000034, 1};
    int major = -1, minor = -1;
    device found = NULL;
    bytes total = show(gpu, name, uuid, &pci);
    compare(&pci, name, uuid, total);
    compare_sysfs(&pci);

    check("nvmlDeviceGetIndex", nvmlDeviceGetIndex(gpu, &value), OK);
    check("its index", value, number);
    check("nvmlDeviceGetHandleByUUID", nvmlDeviceGetHandleByUUID(uuid, &found), OK);
    check_true("found by UUID", found == gpu);
    memcpy(&by_uuid[2], uuid, 41);
    found = NULL;
    check("nvmlDeviceGetHandleByUUIDV", nvmlDeviceGetHandleByUUIDV(by_uuid, &found), OK);
    check_true("found by UUID's record", found == gpu);
    by_uuid[0]++;
    check("nvmlDeviceGetHandleByUUIDV version", nvmlDeviceGetHandleByUUIDV(by_uuid, &found), VERSION);
    uuid[4] = uuid[4] == '0' ? '1' : '0';
    check("nvmlDeviceGetHandleByUUID of none", nvmlDeviceGetHandleByUUID(uuid, &found), NOT_FOUND);
    found = NULL;
    check("nvmlDeviceGetHandleByPciBusId_v2", nvmlDeviceGetHandleByPciBusId_v2(pci.text, &found), OK);
    check_true("found by PCI address", found == gpu);
    found = NULL;
    check("nvmlDeviceGetHandleByPciBusId", nvmlDeviceGetHandleByPciBusId(pci.legacy, &found), OK);
    check_true("found by short PCI address", found == gpu);
    check("nvmlDeviceGetHandleByPciBusId of none", nvmlDeviceGetHandleByPciBusId("ffff:ff:1f.0", &found), NOT_FOUND);
    check("nvmlDeviceGetHandleByPciBusId nonsense", nvmlDeviceGetHandleByPciBusId("here", &found), INVALID);
    check("nvmlDeviceGetHandleBySerial", nvmlDeviceGetHandleBySerial("1", &found), NOT_SUPPORTED);

    snprintf(form, sizeof form, "%08X:%02X:%02X.0", pci.domain, pci.bus, pci.device);
    check_text("form of the PCI address", pci.text, form);
    snprintf(form, sizeof form, "%04X:%02X:%02X.0", pci.domain, pci.bus, pci.device);
    check_text("form of the short PCI address", pci.legacy, form);
    memset(&old, 0xee, sizeof old);
    check("nvmlDeviceGetPciInfo", nvmlDeviceGetPciInfo(gpu, &old), OK);
    check_true("the first version ends at the id", old.id == pci.id && old.subsystem == 0xeeeeeeee);
    check("nvmlDeviceGetPciInfo_v2", nvmlDeviceGetPciInfo_v2(gpu, &old), OK);
    check_true("the second version ends at the subsystem", old.subsystem == pci.subsystem && old.text[0] == '\xee');
    check("nvmlDeviceGetPciInfoExt", nvmlDeviceGetPciInfoExt(gpu, extended), OK);
    check_true("a 3D controller", extended[6] == 3 && extended[7] == 2);
    extended[0] = 0;
    check("nvmlDeviceGetPciInfoExt version", nvmlDeviceGetPciInfoExt(gpu, extended), VERSION);
    check("nvmlDeviceGetPciInfo_v3 null", nvmlDeviceGetPciInfo_v3(gpu, NULL), INVALID);

    check("nvmlDeviceGetMemoryInfo_v2", nvmlDeviceGetMemoryInfo_v2(gpu, &memory), OK);
    check_true("it adds up too", memory.total == total && memory.free + memory.used + memory.reserved == total);
    memory.version = 1;
    check("nvmlDeviceGetMemoryInfo_v2 version", nvmlDeviceGetMemoryInfo_v2(gpu, &memory), VERSION);
    check("nvmlDeviceGetMemoryInfo null", nvmlDeviceGetMemoryInfo(gpu, NULL), INVALID);
    check("nvmlDeviceGetMemoryInfo_v2 null", nvmlDeviceGetMemoryInfo_v2(gpu, NULL), INVALID);
    check("nvmlDeviceGetCudaComputeCapability", nvmlDeviceGetCudaComputeCapability(gpu, &major, &minor), OK);
    printf("# compute capability: %d.%d\n", major, minor);
    check_true("a compute capability", major >= 3 && minor >= 0 && minor <= 9);
    check("nvmlDeviceGetCudaComputeCapability null", nvmlDeviceGetCudaComputeCapability(gpu, &major, NULL), INVALID);
    check("nvmlDeviceGetName small", nvmlDeviceGetName(gpu, text, (unsigned)strlen(name)), SIZE);
    check("nvmlDeviceGetName exact", nvmlDeviceGetName(gpu, text, (unsigned)strlen(name) + 1), OK);
    check("nvmlDeviceGetName null", nvmlDeviceGetName(gpu, NULL, 96), INVALID);
    check("nvmlDeviceGetUUID small", nvmlDeviceGetUUID(gpu, text, 40), SIZE);
    check("nvmlDeviceGetUUID exact", nvmlDeviceGetUUID(gpu, text, 41), OK);
    check("nvmlDeviceGetUUID null", nvmlDeviceGetUUID(gpu, NULL, 41), INVALID);

    check("nvmlDeviceGetComputeMode", nvmlDeviceGetComputeMode(gpu, &value), OK);
    check("nvmlDeviceGetBrand", nvmlDeviceGetBrand(gpu, &value), OK);
    check("nvmlDeviceGetArchitecture", nvmlDeviceGetArchitecture(gpu, &value), OK);
    check_true("an architecture", value >= 2);
    check("nvmlDeviceGetDisplayActive", nvmlDeviceGetDisplayActive(gpu, &value), OK);
    check("no display", value, 0);
    check("nvmlDeviceGetDisplayMode", nvmlDeviceGetDisplayMode(gpu, &value), OK);
    check("nvmlDeviceIsMigDeviceHandle", nvmlDeviceIsMigDeviceHandle(gpu, &value), OK);
    check("no MIG device", value, 0);
    check("nvmlDeviceGetMaxMigDeviceCount", nvmlDeviceGetMaxMigDeviceCount(gpu, &value), OK);
    /* Known or not, as the host has it. */
    int status = nvmlDeviceGetMaxClockInfo(gpu, 1, &value);
    check_either("nvmlDeviceGetMaxClockInfo", status, OK, NOT_SUPPORTED);
    if (status == OK)
        printf("# highest clock: %u MHz\n", value);
    check("nvmlDeviceGetMaxClockInfo of none", nvmlDeviceGetMaxClockInfo(gpu, 4, &value), INVALID);
    check("nvmlDeviceGetMaxClockInfo null", nvmlDeviceGetMaxClockInfo(gpu, 1, NULL), INVALID);
    check_either("nvmlDeviceGetMemoryBusWidth", nvmlDeviceGetMemoryBusWidth(gpu, &value), OK, NOT_SUPPORTED);
    check_either("nvmlDeviceGetNumGpuCores", nvmlDeviceGetNumGpuCores(gpu, &value), OK, NOT_SUPPORTED);
    /* What nobody here knows. */
    check("nvmlDeviceGetTemperature", nvmlDeviceGetTemperature(gpu, 0, &value), NOT_SUPPORTED);
    check("nvmlDeviceGetPowerUsage", nvmlDeviceGetPowerUsage(gpu, &value), NOT_SUPPORTED);
    check("nvmlDeviceGetUtilizationRates", nvmlDeviceGetUtilizationRates(gpu, extended), NOT_SUPPORTED);
    processes(gpu, self);
}

static void bad_handles(void)
{
    static char other[4096];
    char text[96];
    unsigned value;
    struct memory memory;
    device bad[] = {NULL, (device)1, (device)other, (device)(uintptr_t)-8};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        check("a foreign handle: nvmlDeviceGetName", nvmlDeviceGetName(bad[i], text, sizeof text), INVALID);
        check("a foreign handle: nvmlDeviceGetMemoryInfo", nvmlDeviceGetMemoryInfo(bad[i], &memory), INVALID);
        check("a foreign handle: nvmlDeviceGetIndex", nvmlDeviceGetIndex(bad[i], &value), INVALID);
    }
}

static device first;

/* In a forked child the parent's session is not to be touched, and it gets none of its own. */
static int child(void)
{
    char text[96];
    struct memory memory;
    int good = nvmlInit_v2() == UNINITIALIZED && nvmlDeviceGetName(first, text, sizeof text) == UNINITIALIZED &&
               nvmlDeviceGetMemoryInfo(first, &memory) == UNINITIALIZED && nvmlShutdown() == OK;
    return good ? 0 : 1;
}

/* Holds some memory of each device until standard input ends: the process that others list. */
static int hold(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned), (*how_many)(int *), (*retain)(void **, int), (*enter)(void *);
    int (*allocate)(unsigned long long *, size_t), count = 0;
    unsigned long long address;
    char byte;
    if (!cuda)
        return 1;
    *(void **)&init = dlsym(cuda, "cuInit");
    *(void **)&how_many = dlsym(cuda, "cuDeviceGetCount");
    *(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)&enter = dlsym(cuda, "cuCtxSetCurrent");
    *(void **)&allocate = dlsym(cuda, "cuMemAlloc_v2");
    if (!init || !how_many || !retain || !enter || !allocate || init(0) != 0 || how_many(&count) != 0)
        return 2;
    for (int i = 0; i < count; i++)
        if (retain(&context, i) != 0 || enter(context) != 0 || allocate(&address, HELD) != 0)
            return 3;
    if (write(1, "ready\n", 6) != 6)
        return 4;
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}

int main(int argc, char **argv)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "nvml-query: %s\n", dlerror());
        return 1;
    }
    if (!load(library))
        return 1;
    if (argc == 2 && strcmp(argv[1], "hold") == 0)
        return hold();
    atexit(at_exit); /* before libcuda's own, which so runs first */
    uninitialised("before nvmlInit");
    check("before nvmlInit: nvmlShutdown", nvmlShutdown(), OK);
    if (!check("nvmlInit_v2", nvmlInit_v2(), OK)) {
        printf("# %s\n", nvmlErrorString(nvmlInit_v2()));
        return 1;
    }
    check("nvmlInit", nvmlInit(), OK);
    check("nvmlInitWithFlags", nvmlInitWithFlags(0), OK);
    check("nvmlShutdown", nvmlShutdown(), OK);
    check("nvmlShutdown again", nvmlShutdown(), OK);
    versions(expected(argc, argv, "driver"));

    unsigned count = 0, again = 0;
    device gpu = NULL, same = NULL;
    check("nvmlDeviceGetCount_v2", nvmlDeviceGetCount_v2(&count), OK);
    check("nvmlDeviceGetCount", nvmlDeviceGetCount(&again), OK);
    check("both counts", again, count);
    check("nvmlDeviceGetCount_v2 null", nvmlDeviceGetCount_v2(NULL), INVALID);
    printf("# devices: %u\n", count);
    if (expected(argc, argv, "devices"))
        check("devices", count, atoi(expected(argc, argv, "devices")));
    check("no such index", nvmlDeviceGetHandleByIndex_v2(count, &gpu), INVALID);
    check("nvmlDeviceGetHandleByIndex_v2 null", nvmlDeviceGetHandleByIndex_v2(0, NULL), INVALID);
    for (unsigned i = 0; i < count; i++) {
        check("nvmlDeviceGetHandleByIndex_v2", nvmlDeviceGetHandleByIndex_v2(i, &gpu), OK);
        check("nvmlDeviceGetHandleByIndex", nvmlDeviceGetHandleByIndex(i, &same), OK);
        check_true("a device has one handle", gpu && gpu == same);
        one_device(gpu, i, argv[0]);
    }
    if (check("the first device", nvmlDeviceGetHandleByIndex_v2(0, &gpu), OK)) {
        char name[96], uuid[96];
        struct pci pci;
        bytes total = show(gpu, name, uuid, &pci);
        if (expected(argc, argv, "name"))
            check_text("name", name, expected(argc, argv, "name"));
        if (expected(argc, argv, "uuid"))
            check_text("UUID", uuid, expected(argc, argv, "uuid"));
        if (expected(argc, argv, "pci"))
            check_true("PCI address", strcasecmp(pci.legacy, expected(argc, argv, "pci")) == 0);
        if (expected(argc, argv, "total"))
            check("memory", (long long)total, atoll(expected(argc, argv, "total")));
        bad_handles();
        struct memory memory;
        first = gpu;
        check("a forked child's calls answer uninitialised", forked(child), 0);
        check("its parent's session goes on", nvmlDeviceGetMemoryInfo(gpu, &memory), OK);
    }
    check("the last nvmlShutdown", nvmlShutdown(), OK);
    uninitialised("after nvmlShutdown");
    check("one nvmlShutdown more", nvmlShutdown(), OK);
    check("nvmlInit_v2 once more", nvmlInit_v2(), OK);
    check("the handle is the same", nvmlDeviceGetHandleByIndex_v2(0, &same), OK);
    check_true("so it is", gpu == same);
    return 0;
}
