/* Measures: launches a second of a kernel with 100 bytes of parameters through the exported cudaLaunchKernel, timed
 * until the device has completed the last; nanoseconds of calls that ask for state, which must send nothing; and a
 * round trip, before the launches and after. Usage: launches [N] [RUNS]. Prints one JSON object; exit code 1 when a check fails.
 *
 * cc -O2 -o launches launches.c libcudart.so.12 libcuda.so.1 */
#define _GNU_SOURCE
#include <time.h>

#include "check.h"

typedef struct {
    unsigned x, y, z;
} dim3;

int cudaGetDevice(int *);
int cudaSetDevice(int);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaDeviceGetAttribute(int *, int, int);
int cudaDeviceSynchronize(void);
int cudaStreamCreateWithFlags(void **, unsigned);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int __cudaGetKernel(void **, const void *);
int __cudaLaunchKernel(void *, dim3, dim3, void **, size_t, void *);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void *);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

enum { BATCHES = 201, BATCH = 1000 };

/* Nanoseconds of one call: the median of batches. */
#define NANOSECONDS(result, call)                                                                                  \
    do {                                                                                                           \
        static double batches[BATCHES];                                                                            \
        for (int batch = 0; batch < BATCHES; batch++) {                                                            \
            double start = now();                                                                                  \
            for (int i = 0; i < BATCH; i++)                                                                        \
                call;                                                                                              \
            batches[batch] = (now() - start) * 1e9 / BATCH;                                                        \
        }                                                                                                          \
        (result) = median(batches, BATCHES);                                                                       \
    } while (0)

/* Nanoseconds of a round trip to the device and nothing else: the median after a few to wake it. Negative: failed. */
static double round_trips(const struct table *private)
{
    enum { WAKING = 200, TRIPS = 2001 };
    static double trips[TRIPS];
    for (int i = -WAKING; i < TRIPS; i++) {
        double start = now();
        if (private->echo(0))
            return -1;
        if (i >= 0)
            trips[i] = (now() - start) * 1e9;
    }
    return median(trips, TRIPS);
}

static char stand_in; /* its address is the kernel's name on the host */

static int failed(const char *what, int status)
{
    fprintf(stderr, "launches: %s: status %d\n", what, status);
    return 1;
}

/* Waits until the device has carried out all that was sent: messages are carried out in their order, so that the
 * answer to an echo comes after them. (A synchronize alone need not wait where there is nothing to bring back.) */
static int finished(const struct table *private)
{
    int status = cudaDeviceSynchronize();
    return status ? status : private->echo(0);
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 1000000;
    int runs = argc > 2 ? atoi(argv[2]) : 5;
    if (count < 1 || runs < 1 || runs > 100) {
        fprintf(stderr, "usage: launches [N] [RUNS]\n");
        return 2;
    }

    static struct fatbin fatbin;
    static struct fatbin_wrapper wrapper;
    fatbin_make(&fatbin, PTX);
    fatbin_wrap(&wrapper, &fatbin);
    void **handle = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(handle, &stand_in, "hundred", "hundred", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);

    int status = cudaSetDevice(0);
    if (status)
        return failed("cudaSetDevice", status);
    const struct table *private = table();
    if (!private)
        return failed("the private table", -1);

    uint64_t parameters[13] = {0};
    void *args[13];
    for (int i = 0; i < 13; i++)
        args[i] = &parameters[i];
    const dim3 grid = {108, 1, 1}, block = {256, 1, 1};
    void *stream = NULL;
    if ((status = cudaStreamCreateWithFlags(&stream, 1)))
        return failed("cudaStreamCreateWithFlags", status);

    /* The first launch loads the code. */
    if ((status = cudaLaunchKernel(&stand_in, grid, block, args, 0, stream)))
        return failed("cudaLaunchKernel", status);
    if ((status = cudaDeviceSynchronize()))
        return failed("cudaDeviceSynchronize", status);

    double idle = round_trips(private);
    static double rates[100], rates13[100];
    void *kernel = NULL;
    if ((status = __cudaGetKernel(&kernel, &stand_in)))
        return failed("__cudaGetKernel", status);
    int wrong = 0;
    for (int run = 0; run < runs; run++) {
        uint64_t before = 0, after = 0;
        private->done(&before);
        double start = now();
        for (long i = 0; i < count; i++) {
            status = cudaLaunchKernel(&stand_in, grid, block, args, 0, stream);
            if (status)
                return failed("cudaLaunchKernel", status);
        }
        if ((status = finished(private)))
            return failed("waiting for the last launch", status);
        rates[run] = (double)count / (now() - start);
        private->done(&after);
        /* Each launch is a message, and the device has carried all of them out. */
        wrong |= after - before < (uint64_t)count;

        start = now();
        for (long i = 0; i < count; i++) {
            dim3 a, b;
            size_t bytes;
            void *s;
            __cudaPushCallConfiguration(grid, block, 0, stream);
            __cudaPopCallConfiguration(&a, &b, &bytes, &s);
            status = __cudaLaunchKernel(kernel, a, b, args, bytes, s);
            if (status)
                return failed("__cudaLaunchKernel", status);
        }
        if ((status = finished(private)))
            return failed("waiting for the last launch", status);
        rates13[run] = (double)count / (now() - start);
    }

    double ns_device, ns_last, ns_peek, ns_attribute, ns_configuration;
    int value = 0, ordinal = 0;
    dim3 a, b;
    size_t bytes;
    void *s;
    uint64_t sent = messages(private);
    NANOSECONDS(ns_device, cudaGetDevice(&ordinal));
    NANOSECONDS(ns_last, cudaGetLastError());
    NANOSECONDS(ns_peek, cudaPeekAtLastError());
    NANOSECONDS(ns_attribute, cudaDeviceGetAttribute(&value, 16, 0));
    NANOSECONDS(ns_configuration, (__cudaPushCallConfiguration(grid, block, 0, stream),
                                   __cudaPopCallConfiguration(&a, &b, &bytes, &s)));
    uint64_t queries_sent = messages(private) - sent;
    wrong |= queries_sent != 0;

    double after = round_trips(private);
    if (idle < 0 || after < 0)
        return failed("echo", -1);

    struct counters counters;
    private->counters(&counters);
    printf("{\"launches\": %ld, \"launches_per_s\": %.0f, \"launches_per_s_cuda13\": %.0f, \"get_device_ns\": %.1f, "
           "\"get_last_error_ns\": %.1f, \"peek_ns\": %.1f, \"get_attribute_ns\": %.1f, \"push_pop_ns\": %.1f, "
           "\"queries_sent\": %llu, \"round_trip_ns\": %.0f, \"round_trip_after_ns\": %.0f, \"messages\": %llu, \"sleeps\": %llu, \"ok\": %s}\n",
           count, median(rates, runs), median(rates13, runs), ns_device, ns_last, ns_peek, ns_attribute,
           ns_configuration, (unsigned long long)queries_sent, idle, after, (unsigned long long)counters.messages,
           (unsigned long long)counters.sleeps, wrong ? "false" : "true");
    __cudaUnregisterFatBinary(handle);
    return wrong;
}
