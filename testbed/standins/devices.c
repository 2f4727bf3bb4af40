/* Copies and fills of the runtime API between devices: every function, every direction, whichever device is current and whichever
 * the stream is of. One line for each function (TAP); exit code 0 when all bytes were right.
 *
 * Usage: devices COUNT     how many devices there must be
 * cc -DCUDA=12 -o devices devices.c libcudart.so.12 libcuda.so.1    (or 13) */
#include "check.h"
#include "runtime/api.h"

int cudaMemset3DAsync_ptsz(pitched, int, extent, void *), cudaMemset2DAsync_ptsz(void *, size_t, int, size_t, size_t, void *);

enum { MOST = 3, BYTES = 60000, WIDTH = 211, HEIGHT = 13, DEPTH = 3, TO_PITCH = 512, FROM_PITCH = 300, ROWS = 17 };

/* What a function copies: all in a row, or a box with a pitch of its own on each side. */
enum form { LINE, FLAT, DEEP };

struct ask {
    void *to, *from;
    int to_device, from_device, kind; /* device -1: the host */
    void *stream;
    copy3d deep;
    copy3d_peer peer;
};

struct function {
    const char *name;
    enum form form;
    int between_devices; /* takes device memory on both sides only */
    int (*call)(const struct ask *);
};

#define CALL(NAME, ...)                                \
    static int NAME##_call(const struct ask *a)        \
    {                                                  \
        (void)a;                                       \
        return NAME(__VA_ARGS__);                      \
    }
CALL(cudaMemcpy, a->to, a->from, BYTES, a->kind)
CALL(cudaMemcpy_ptds, a->to, a->from, BYTES, a->kind)
CALL(cudaMemcpyAsync, a->to, a->from, BYTES, a->kind, a->stream)
CALL(cudaMemcpyAsync_ptsz, a->to, a->from, BYTES, a->kind, a->stream)
CALL(cudaMemcpy2D, a->to, TO_PITCH, a->from, FROM_PITCH, WIDTH, HEIGHT, a->kind)
CALL(cudaMemcpy2D_ptds, a->to, TO_PITCH, a->from, FROM_PITCH, WIDTH, HEIGHT, a->kind)
CALL(cudaMemcpy2DAsync, a->to, TO_PITCH, a->from, FROM_PITCH, WIDTH, HEIGHT, a->kind, a->stream)
CALL(cudaMemcpy2DAsync_ptsz, a->to, TO_PITCH, a->from, FROM_PITCH, WIDTH, HEIGHT, a->kind, a->stream)
CALL(cudaMemcpy3D, &a->deep)
CALL(cudaMemcpy3D_ptds, &a->deep)
CALL(cudaMemcpy3DAsync, &a->deep, a->stream)
CALL(cudaMemcpy3DAsync_ptsz, &a->deep, a->stream)
CALL(cudaMemcpyPeer, a->to, a->to_device, a->from, a->from_device, BYTES)
CALL(cudaMemcpyPeerAsync, a->to, a->to_device, a->from, a->from_device, BYTES, a->stream)
CALL(cudaMemcpy3DPeer, &a->peer)
CALL(cudaMemcpy3DPeer_ptds, &a->peer)
CALL(cudaMemcpy3DPeerAsync, &a->peer, a->stream)
CALL(cudaMemcpy3DPeerAsync_ptsz, &a->peer, a->stream)

#define FUNCTION(NAME, FORM, PEER) {#NAME, FORM, PEER, NAME##_call}
static const struct function functions[] = {
    FUNCTION(cudaMemcpy, LINE, 0),           FUNCTION(cudaMemcpy_ptds, LINE, 0),
    FUNCTION(cudaMemcpyAsync, LINE, 0),      FUNCTION(cudaMemcpyAsync_ptsz, LINE, 0),
    FUNCTION(cudaMemcpy2D, FLAT, 0),         FUNCTION(cudaMemcpy2D_ptds, FLAT, 0),
    FUNCTION(cudaMemcpy2DAsync, FLAT, 0),    FUNCTION(cudaMemcpy2DAsync_ptsz, FLAT, 0),
    FUNCTION(cudaMemcpy3D, DEEP, 0),         FUNCTION(cudaMemcpy3D_ptds, DEEP, 0),
    FUNCTION(cudaMemcpy3DAsync, DEEP, 0),    FUNCTION(cudaMemcpy3DAsync_ptsz, DEEP, 0),
    FUNCTION(cudaMemcpyPeer, LINE, 1),       FUNCTION(cudaMemcpyPeerAsync, LINE, 1),
    FUNCTION(cudaMemcpy3DPeer, DEEP, 1),     FUNCTION(cudaMemcpy3DPeer_ptds, DEEP, 1),
    FUNCTION(cudaMemcpy3DPeerAsync, DEEP, 1), FUNCTION(cudaMemcpy3DPeerAsync_ptsz, DEEP, 1),
};

static int devices;
/* Buffers by device; the last is the host's. */
static unsigned char *targets[MOST + 1], *sources[MOST + 1];
static unsigned char before[BYTES], data_in[BYTES], expected[BYTES], got[BYTES];

static void expect(enum form form)
{
    memcpy(expected, form == LINE ? data_in : before, BYTES);
    if (form == LINE)
        return;
    for (int z = 0; z < (form == DEEP ? DEPTH : 1); z++)
        for (int y = 0; y < HEIGHT; y++)
            memcpy(expected + (z * ROWS + y) * TO_PITCH, data_in + (z * ROWS + y) * FROM_PITCH, WIDTH);
}

static int put(int place, unsigned char *memory, const unsigned char *bytes)
{
    if (place == devices)
        return memcpy(memory, bytes, BYTES) ? 0 : 1;
    return cudaSetDevice(place) || cudaMemcpy(memory, bytes, BYTES, H2D);
}

static int take(int place, const unsigned char *memory)
{
    if (place == devices)
        return memcpy(got, memory, BYTES) ? 0 : 1;
    return cudaSetDevice(place) || cudaMemcpy(got, memory, BYTES, D2H);
}

/* One copy; 0 when it said success and the bytes are right. */
static int copies(const struct function *function, int to, int from, int current, void *stream, int named)
{
    static unsigned seed;
    struct ask ask = {targets[to], sources[from], to, from, ANY, stream, {0}, {0}};
    if (named)
        ask.kind = to == devices ? from == devices ? H2H : D2H : from == devices ? H2D : D2D;
    ask.deep = (copy3d){NULL, {0}, {ask.from, FROM_PITCH, FROM_PITCH, ROWS}, NULL, {0}, {ask.to, TO_PITCH, TO_PITCH, ROWS},
                        {WIDTH, HEIGHT, DEPTH}, (unsigned)ask.kind};
    ask.peer = (copy3d_peer){NULL, {0}, ask.deep.src, from, NULL, {0}, ask.deep.dst, to, {WIDTH, HEIGHT, DEPTH}};
    fill(before, BYTES, ++seed);
    fill(data_in, BYTES, ++seed);
    expect(function->form);
    if (put(to, targets[to], before) || put(from, sources[from], data_in) || cudaSetDevice(current))
        return 1;
    if (function->call(&ask) || cudaStreamSynchronize(stream) || cudaStreamSynchronize(PER_THREAD) || take(to, targets[to]))
        return 2;
    return memcmp(got, expected, BYTES) ? 3 : 0;
}

struct filling {
    const char *name;
    enum form form;
    int (*call)(unsigned char *, void *);
};

#define FILL(NAME, ...)                                      \
    static int NAME##_fill(unsigned char *to, void *stream)  \
    {                                                        \
        (void)stream;                                        \
        return NAME(__VA_ARGS__);                            \
    }
#define BOX (pitched){to, TO_PITCH, TO_PITCH, ROWS}
#define SIZE (extent){WIDTH, HEIGHT, DEPTH}
FILL(cudaMemset, to, 7, BYTES)
FILL(cudaMemset_ptds, to, 7, BYTES)
FILL(cudaMemsetAsync, to, 7, BYTES, stream)
FILL(cudaMemset2D, to, TO_PITCH, 7, WIDTH, HEIGHT)
FILL(cudaMemset2D_ptds, to, TO_PITCH, 7, WIDTH, HEIGHT)
FILL(cudaMemset2DAsync, to, TO_PITCH, 7, WIDTH, HEIGHT, stream)
FILL(cudaMemset2DAsync_ptsz, to, TO_PITCH, 7, WIDTH, HEIGHT, stream)
FILL(cudaMemset3D, BOX, 7, SIZE)
FILL(cudaMemset3D_ptds, BOX, 7, SIZE)
FILL(cudaMemset3DAsync, BOX, 7, SIZE, stream)
FILL(cudaMemset3DAsync_ptsz, BOX, 7, SIZE, stream)

#define FILLING(NAME, FORM) {#NAME, FORM, NAME##_fill}
static const struct filling fillings[] = {
    FILLING(cudaMemset, LINE),          FILLING(cudaMemset_ptds, LINE),        FILLING(cudaMemsetAsync, LINE),
    FILLING(cudaMemset2D, FLAT),        FILLING(cudaMemset2D_ptds, FLAT),      FILLING(cudaMemset2DAsync, FLAT),
    FILLING(cudaMemset2DAsync_ptsz, FLAT), FILLING(cudaMemset3D, DEEP),        FILLING(cudaMemset3D_ptds, DEEP),
    FILLING(cudaMemset3DAsync, DEEP),   FILLING(cudaMemset3DAsync_ptsz, DEEP),
};

static int fills(const struct filling *filling, int to, int current, void *stream)
{
    static unsigned seed = 1u << 20;
    fill(before, BYTES, ++seed);
    memset(data_in, 7, BYTES);
    expect(filling->form);
    if (put(to, targets[to], before) || cudaSetDevice(current))
        return 1;
    if (filling->call(targets[to], stream) || cudaStreamSynchronize(stream) || cudaStreamSynchronize(PER_THREAD))
        return 2;
    return take(to, targets[to]) ? 2 : memcmp(got, expected, BYTES) ? 3 : 0;
}

int main(int argc, char **argv)
{
    int wanted = argc > 1 ? atoi(argv[1]) : 2;
    check("cudaGetDeviceCount", cudaGetDeviceCount(&devices), 0);
    if (!check("devices", devices, wanted) || devices > MOST)
        return finish();
    void *streams[MOST] = {NULL};
    for (int device = 0; device < devices; device++) {
        check("cudaSetDevice", cudaSetDevice(device), 0);
        check("cudaMalloc", cudaMalloc((void **)&targets[device], BYTES) || cudaMalloc((void **)&sources[device], BYTES), 0);
        check("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&streams[device], 1), 0);
    }
    targets[devices] = malloc(BYTES);
    sources[devices] = malloc(BYTES);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        int wrong = 0, places = functions[i].between_devices ? devices : devices + 1, named = 0;
        for (int to = 0; to < places; to++)
            for (int from = 0; from < places; from++)
                for (int current = 0; current < devices; current++) {
                    /* The current device's stream, the legacy one, and another device's. */
                    void *choices[] = {streams[current], NULL, streams[(current + 1) % devices]};
                    for (int choice = 0; choice < 3; choice++)
                        wrong += copies(&functions[i], to, from, current, choices[choice], named++ & 1) != 0;
                }
        check(functions[i].name, wrong, 0);
    }
    for (size_t i = 0; i < sizeof fillings / sizeof *fillings; i++) {
        int wrong = 0;
        for (int to = 0; to < devices; to++)
            for (int current = 0; current < devices; current++) {
                void *choices[] = {streams[current], NULL, streams[(current + 1) % devices]};
                for (int choice = 0; choice < 3; choice++)
                    wrong += fills(&fillings[i], to, current, choices[choice]) != 0;
            }
        check(fillings[i].name, wrong, 0);
    }
    for (int device = 0; device < devices; device++)
        check("cudaFree", cudaFree(targets[device]) || cudaFree(sources[device]), 0);
    return finish();
}
