/* Faults of the device, as a program meets them. Usage: faults CASE, one of the names in `cases`.
   Prints `fault STATUS`, what whoever waits for the work is told; then what four calls behind it return:
   `synchronize`, `allocate`, `launch` (of a kernel that is right, and waited for), `copy` (of what that stored;
   -1: something else came back).
   `lost` prints `ready` and goes on when its input ends: the device is to be gone by then.

   cc -o faults faults.c libcuda.so.1 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long address;

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(address *pointer, size_t bytes);
int cuMemcpyDtoH_v2(void *destination, address pointer, size_t bytes);
int cuMemcpyDtoDAsync_v2(address destination, address source, size_t bytes, void *stream);
int cuMemsetD8Async(address destination, unsigned char value, size_t bytes, void *stream);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamSynchronize(void *stream);
int cuStreamQuery(void *stream);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cuGraphLaunch(void *exec, void *stream);
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuEventSynchronize(void *event);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);
int cuLaunchCooperativeKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                              unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters);

enum { NOWHERE = 0xdead0000, BYTES = 4096 };

static const char head[] = ".version 7.0\n.target sm_50\n.address_size 64\n";
static const char variables[] = ".reg .u64 %d<3>; .reg .u32 %r<3>; .reg .pred %q; ld.param.u64 %d1, [where]; mov.u32 %r1, 9;";

/* Memory of this program's, in which the kernel that is right stores. */
static address memory;

/* The kernel `f` with this code; its status, when it could be made. */
static int kernel(void **function, const char *directives, const char *code) {
    static char text[8192];
    void *module;
    snprintf(text, sizeof text, "%s.visible .entry f(.param .u64 where) %s { %s %s ret; }\n", head, directives, variables,
             code);
    int status = cuModuleLoadData(&module, text);
    return status ? status : cuModuleGetFunction(function, module, "f");
}

static int launch(void *function, unsigned threads, unsigned shared, address where, void *stream) {
    void *parameters[] = {&where};
    return cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, shared, stream, parameters, 0);
}

/* The first of two statuses that is an error. C evaluates arguments in any order: no two of them are calls. */
static int first(int one, int other) { return one ? one : other; }

/* Waits behind a call; the first status that is an error. */
static int waited(int status) { return first(status, cuCtxSynchronize()); }

/* Runs code in `threads` threads and waits. */
static int run(const char *directives, const char *code, unsigned threads, unsigned shared, address where) {
    void *function;
    int status = kernel(&function, directives, code);
    return waited(status ? status : launch(function, threads, shared, where, 0));
}

static int store(address where) { return run("", "st.global.u32 [%d1], %r1;", 1, 0, where); }

static int write_nowhere(void) { return store(NOWHERE); }
static int read_null(void) { return run("", "ld.global.u32 %r1, [%d1];", 1, 0, 0); }
static int misaligned(void) { return store(memory + 2); }
static int beyond_shared(void) {
    return run("", ".shared .u32 own[4]; mov.u64 %d2, 1048576; st.shared.u32 [%d2], %r1;", 1, 0, 0);
}
static int beyond_local(void) {
    return run("", ".local .u32 own[4]; mov.u64 %d2, 1048576; st.local.u32 [%d2], %r1;", 1, 0, 0);
}
static int trapped(void) { return run("", "trap;", 32, 0, 0); }
static int bad_barrier(void) { return run("", "mov.u32 %r2, 16; bar.sync %r2;", 32, 0, 0); }
static int barrier_without_end(void) { return run("", "bar.sync 0, 64;", 32, 0, 0); }
static int without_end(void) { return run("", "again: bra again;", 32, 0, 0); }

/* In a stream that waits for nobody; who asks about an event behind it is told too. */
static int in_a_stream(void) {
    void *stream, *event, *function;
    int status = kernel(&function, "", "st.global.u32 [%d1], %r1;");
    if (status || cuStreamCreate(&stream, 1) || cuEventCreate(&event, 2))
        return -1;
    status = launch(function, 1, 0, NOWHERE, stream);
    status = first(status, cuEventRecord(event, stream));
    status = first(status, cuEventSynchronize(event));
    int again = cuStreamQuery(stream);
    return status == again ? first(status, cuStreamSynchronize(stream)) : -1;
}

static int in_a_graph(void) {
    void *stream, *graph, *exec, *function;
    int status = kernel(&function, "", "st.global.u32 [%d1], %r1;");
    if (status || cuStreamCreate(&stream, 1) || cuStreamBeginCapture_v2(stream, 2) ||
        launch(function, 1, 0, NOWHERE, stream) || cuStreamEndCapture(stream, &graph) ||
        cuGraphInstantiateWithFlags(&exec, graph, 0))
        return -1;
    return waited(cuGraphLaunch(exec, stream));
}

static int fill_nowhere(void) { return waited(cuMemsetD8Async(NOWHERE, 1, 16, 0)); }
static int copy_nowhere(void) { return waited(cuMemcpyDtoDAsync_v2(memory, NOWHERE, 16, 0)); }

static int load(const char *text) {
    void *module, *function;
    int status = cuModuleLoadData(&module, text);
    if (!status)
        status = cuModuleGetFunction(&function, module, "f");
    return waited(status ? status : launch(function, 1, 0, memory, 0));
}

static int no_ptx(void) { return load("no PTX"); }
static int newer_ptx(void) { return load(".version 99.0\n.target sm_50\n.address_size 64\n.entry f() { ret; }\n"); }
static int other_gpu(void) { return load(".version 7.8\n.target sm_90\n.address_size 64\n.entry f() { ret; }\n"); }
static int no_image(void) {
    /* The head of an ELF file, and nothing behind it. */
    static const char image[64] = "\177ELF\2\1\1";
    return load(image);
}
static int unknown_instruction(void) { return run("", "foo.bar.u32 %r1, 1;", 1, 0, 0); }
static int no_such_kernel(void) { return load(".version 7.0\n.target sm_50\n.address_size 64\n.entry g() { ret; }\n"); }
static int too_many_registers(void) { return run("", ".reg .b32 %x<1048577>;", 1, 0, 0); }
static int too_many_threads(void) { return run(".maxntid 64, 1, 1", "", 128, 0, 0); }
static int too_large_a_block(void) { return run("", "", 2048, 0, 0); }
static int too_much_shared(void) { return run("", "", 32, 1 << 20, 0); }

static int too_large_a_grid(void) {
    void *function;
    address where = memory;
    void *parameters[] = {&where};
    int status = kernel(&function, "", "");
    if (!status)
        status = cuLaunchCooperativeKernel(function, 1 << 20, 1, 1, 1024, 1, 1, 0, 0, parameters);
    return waited(status);
}

static int no_memory(void) {
    address more;
    return cuMemAlloc_v2(&more, 1ull << 40);
}

static int lost(void) {
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return store(memory);
}

static const struct {
    const char *name;
    int (*fault)(void);
} cases[] = {
    {"write-nowhere", write_nowhere},
    {"read-null", read_null},
    {"misaligned", misaligned},
    {"beyond-shared", beyond_shared},
    {"beyond-local", beyond_local},
    {"trap", trapped},
    {"bad-barrier", bad_barrier},
    {"barrier-without-end", barrier_without_end},
    {"without-end", without_end},
    {"in-a-stream", in_a_stream},
    {"in-a-graph", in_a_graph},
    {"fill-nowhere", fill_nowhere},
    {"copy-nowhere", copy_nowhere},
    {"no-ptx", no_ptx},
    {"newer-ptx", newer_ptx},
    {"other-gpu", other_gpu},
    {"no-image", no_image},
    {"unknown-instruction", unknown_instruction},
    {"no-such-kernel", no_such_kernel},
    {"too-many-registers", too_many_registers},
    {"too-many-threads", too_many_threads},
    {"too-large-a-block", too_large_a_block},
    {"too-much-shared", too_much_shared},
    {"too-large-a-grid", too_large_a_grid},
    {"no-memory", no_memory},
    {"lost", lost},
};

static int said(const char *what, int status) {
    printf("%s %d\n", what, status);
    return fflush(stdout);
}

int main(int count, char **words) {
    void *context, *right;
    address more;
    unsigned found = 0;
    if (count != 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemAlloc_v2(&memory, BYTES) || kernel(&right, "", "st.global.u32 [%d1], %r1;") ||
        launch(right, 1, 0, memory, 0) || cuCtxSynchronize())
        return 2;
    for (unsigned at = 0; at < sizeof cases / sizeof *cases; at++) {
        if (strcmp(words[1], cases[at].name))
            continue;
        said("fault", cases[at].fault());
        said("synchronize", cuCtxSynchronize());
        said("allocate", cuMemAlloc_v2(&more, BYTES));
        said("launch", waited(launch(right, 1, 0, memory, 0)));
        int status = cuMemcpyDtoH_v2(&found, memory, sizeof found);
        said("copy", status == 0 && found != 9 ? -1 : status);
        return 0;
    }
    return 3;
}
