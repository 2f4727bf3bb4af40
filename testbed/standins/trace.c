/* Programs for `vgpu-run trace`, one for each word:
   crash     a call that fails, two busy threads, a call in a forked child, and one that the process dies in
   full      the same end, when the file that calls are written to is full
   messages  messages to the device and waits for it; then says so, and ends when its input does
   stuck     a call that never returns; says so from within it
   idle      one call; says so, and waits for a signal
   majors    the same call of both CUDA majors
   refused   a kernel that the host refuses, which fails at its launch
   hang      waits for a kernel that never ends, behind one that does and before another
   fault     a kernel that writes where it must not */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetCount(int *count);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes);
int cuMemsetD8_v2(unsigned long long pointer, unsigned char value, size_t bytes);
int cuMemcpyHtoD_v2(unsigned long long pointer, const void *source, size_t bytes);
int cuMemcpyDtoH_v2(void *destination, unsigned long long pointer, size_t bytes);

static void say(const char *word) {
    if (write(1, word, strlen(word)) < 0)
        _exit(9);
}

static void *ask(void *unused) {
    int version;
    for (int call = 0; call < 30000; call++)
        cuDriverGetVersion(&version);
    return unused;
}

static int crash(void) {
    int number;
    if (cuInit(0) || cuDeviceGetCount(&number) || number < 1)
        return 2;
    if (cuDeviceGet(&number, 99) == 0)
        return 3;
    pthread_t threads[2];
    for (int thread = 0; thread < 2; thread++)
        pthread_create(&threads[thread], 0, ask, 0);
    for (int thread = 0; thread < 2; thread++)
        pthread_join(threads[thread], 0);
    pid_t child = fork();
    if (child == 0) {
        cuDeviceGetCount(&number);
        _exit(0);
    }
    waitpid(child, 0, 0);
    /* No such address: the process dies inside the call. */
    cuDeviceGetCount((int *)8);
    return 4;
}

static int full(void) {
    /* One step of room, some ten thousand calls. */
    struct rlimit limit = {1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_FSIZE, &limit) || cuInit(0))
        return 2;
    ask(0);
    /* This one is named for the first time when there is no room for a name. */
    cuDeviceGetCount((int *)8);
    return 4;
}

static int messages(void) {
    static char data[1 << 20];
    void *context;
    unsigned long long pointer;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemAlloc_v2(&pointer, sizeof data))
        return 2;
    for (int round = 0; round < 50; round++)
        if (cuMemsetD8_v2(pointer, round, sizeof data) || cuMemcpyHtoD_v2(pointer, data, 4096) ||
            cuMemcpyDtoH_v2(data, pointer, sizeof data) || data[5000] != round)
            return 3;
    if (cuCtxSynchronize())
        return 4;
    say("ready\n");
    getchar();
    _exit(0);
}

static void stay(int signal) {
    (void)signal;
    say("ready\n");
    for (;;)
        pause();
}

static int stuck(void) {
    void *nothing = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (cuInit(0) || nothing == MAP_FAILED)
        return 2;
    signal(SIGSEGV, stay);
    cuDeviceGetCount(nothing);
    return 4;
}

static int idle(void) {
    if (cuInit(0))
        return 2;
    say("ready\n");
    for (;;)
        pause();
}

static int majors(void) {
    const char *names[] = {"libcudart.so.12", "libcudart.so.13"};
    for (int major = 0; major < 2; major++) {
        void *library = dlopen(names[major], RTLD_NOW | RTLD_LOCAL);
        int (*version)(int *) = library ? (int (*)(int *))dlsym(library, "cudaRuntimeGetVersion") : 0;
        int number;
        if (!version || version(&number) || number / 1000 != 12 + major)
            return 2 + major;
    }
    return 0;
}

static int refused(void) {
    static const char code[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                               ".visible .entry wrong() { frobnicate.u32 %r1, 7; ret; }\n";
    void *context, *module, *function;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuModuleLoadData(&module, code) || cuModuleGetFunction(&function, module, "wrong"))
        return 2;
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) == 218 ? 0 : 3;
}

/* A module's kernel `quick`, `_Z7endlessv` or `_Z5faultv`, in a context. */
static void *kernel(const char *name) {
    static const char code[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                               ".visible .entry quick() { ret; }\n"
                               ".visible .entry _Z7endlessv() { L: bra L; }\n"
                               ".visible .entry _Z5faultv() {\n .reg .u64 %rd<2>;\n mov.u64 %rd1, 16;\n"
                               " st.global.u32 [%rd1], 7;\n ret;\n}\n";
    static void *context, *module;
    void *function;
    if (!context && (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
                     cuModuleLoadData(&module, code)))
        return 0;
    return cuModuleGetFunction(&function, module, name) ? 0 : function;
}

static int launch(const char *name) {
    void *function = kernel(name);
    return !function || cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
}

static int hang(void) {
    unsigned long long pointer;
    char byte;
    if (launch("quick") || cuMemAlloc_v2(&pointer, 1) || launch("_Z7endlessv") || launch("quick"))
        return 2;
    say("ready\n");
    cuMemcpyDtoH_v2(&byte, pointer, 1);
    return 4;
}

static int fault(void) {
    if (launch("_Z5faultv"))
        return 2;
    return cuCtxSynchronize() == 700 ? 0 : 3;
}

int main(int count, char **words) {
    static const struct {
        const char *word;
        int (*program)(void);
    } programs[] = {{"crash", crash}, {"full", full}, {"messages", messages},
                    {"stuck", stuck}, {"idle", idle}, {"majors", majors},
                    {"refused", refused}, {"hang", hang},     {"fault", fault}};
    for (unsigned number = 0; count == 2 && number < sizeof programs / sizeof *programs; number++)
        if (!strcmp(words[1], programs[number].word))
            return programs[number].program();
    return 64;
}
