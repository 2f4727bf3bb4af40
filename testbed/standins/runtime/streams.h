/* Streams and events. Part of runtime.c. */
#ifndef VGPU_STANDINS_RUNTIME_STREAMS_H
#define VGPU_STANDINS_RUNTIME_STREAMS_H

#include "../check.h"
#include "api.h"

static void count_call(void *counter)
{
    ++*(int *)counter;
}

static void count_callback(void *stream, int status, void *counter)
{
    *(int *)counter += stream && status == 0 ? 10 : 1000;
}

/* Functions of the host in the order of a stream: only a device that does the work can be held. */
static void host_functions(void)
{
    void *stream = NULL;
    int counter = 0;
    cudaStreamCreate(&stream);
    check("cudaLaunchHostFunc null", cudaLaunchHostFunc(stream, NULL, &counter), 1);
    check("cudaLaunchHostFunc in none", cudaLaunchHostFunc(BOGUS, count_call, &counter), 400);
    check("cudaLaunchHostFunc", cudaLaunchHostFunc(stream, count_call, &counter), data ? 0 : 801);
    check("cudaStreamAddCallback", cudaStreamAddCallback(stream, count_callback, &counter, 0), data ? 0 : 801);
    check("cudaStreamAddCallback bad flags", cudaStreamAddCallback(stream, count_callback, &counter, 1), 1);
    check("cudaStreamSynchronize after functions", cudaStreamSynchronize(stream), 0);
    check("both were called", counter, data ? 11 : 0);
    int host = data ? 0 : 801;
    check("cudaLaunchHostFunc_ptsz", cudaLaunchHostFunc_ptsz(NULL, count_call, &counter), host);
    check("cudaStreamAddCallback_ptsz", cudaStreamAddCallback_ptsz(NULL, count_callback, &counter, 0), host);
    check("cudaStreamSynchronize per thread after functions", cudaStreamSynchronize(PER_THREAD), 0);
    check("both were called again", counter, data ? 22 : 0);
#if CUDA == 13
    check("cudaLaunchHostFunc_v2", cudaLaunchHostFunc_v2(stream, count_call, &counter, 1), host);
    check("cudaLaunchHostFunc_v2 bad mode", cudaLaunchHostFunc_v2(stream, count_call, &counter, 2), 1);
    check("cudaLaunchHostFunc_v2_ptsz", cudaLaunchHostFunc_v2_ptsz(NULL, count_call, &counter, 0), host);
    check("cudaDeviceSynchronize after functions", cudaDeviceSynchronize(), 0);
    check("both of these, too", counter, data ? 24 : 0);
#endif
    cudaStreamDestroy(stream);
}

static void streams_and_events(void)
{
    void *stream = NULL, *other = NULL, *event = NULL, *later = NULL;
    check("cudaStreamCreate null", cudaStreamCreate(NULL), 1);
    check("cudaStreamCreate", cudaStreamCreate(&stream), 0);
    check("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&other, 1), 0);
    check("cudaStreamCreateWithFlags bad", cudaStreamCreateWithFlags(&later, 77), 1);
    unsigned flags = 99;
    check("cudaStreamGetFlags", cudaStreamGetFlags(other, &flags), 0);
    check("the flags are those of its creation", flags, 1);
    check("cudaStreamGetFlags null", cudaStreamGetFlags(other, NULL), 1);
    check("cudaStreamQuery", cudaStreamQuery(stream), 0);
    check("cudaStreamQuery of none", cudaStreamQuery(BOGUS), 400);
    check("cudaStreamSynchronize", cudaStreamSynchronize(stream), 0);
    check("cudaStreamSynchronize of none", cudaStreamSynchronize(BOGUS), 400);
    check("cudaStreamSynchronize legacy", cudaStreamSynchronize((void *)1), 0);
    uint64_t id = 0, second = 0;
    check("cudaStreamGetId", cudaStreamGetId(stream, &id), 0);
    check("cudaStreamGetId other", cudaStreamGetId(other, &second), 0);
    check_true("numbers of streams differ", id != second);
    int ordinal = -1;
    check("cudaStreamGetDevice", cudaStreamGetDevice(stream, &ordinal), 0);
    check("a stream's device", ordinal, 0);
    check("cudaStreamGetDevice null", cudaStreamGetDevice(stream, NULL), 1);
    void *urgent = NULL;
    int priority = 99, least = 9, greatest = 9;
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    check("cudaStreamCreateWithPriority", cudaStreamCreateWithPriority(&urgent, 0, -1), 0);
    check("cudaStreamGetPriority", cudaStreamGetPriority(urgent, &priority), 0);
    check("the priority is that of its creation, within the range", priority, greatest < -1 ? -1 : greatest);
    check("cudaStreamDestroy urgent", cudaStreamDestroy(urgent), 0);
    check("cudaStreamDestroy again", cudaStreamDestroy(urgent), 400);
    check("cudaStreamDestroy of stream 0", cudaStreamDestroy(NULL), 400);

    check("cudaEventCreate null", cudaEventCreate(NULL), 1);
    check("cudaEventCreate", cudaEventCreate(&event), 0);
    check("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&later, 0), 0);
    check("cudaEventCreateWithFlags bad", cudaEventCreateWithFlags(&later, 0x100), 1);
    check("cudaEventQuery not recorded", cudaEventQuery(event), 0);
    float milliseconds = -1;
    check("cudaEventElapsedTime not recorded", cudaEventElapsedTime(&milliseconds, event, later), 400);
    check("cudaEventRecord", cudaEventRecord(event, stream), 0);
    void *memory = NULL;
    cudaMalloc(&memory, 1 << 20);
    check("work between", cudaMemsetAsync(memory, 0, 1 << 20, stream), 0);
    check("cudaEventRecordWithFlags", cudaEventRecordWithFlags(later, stream, 0), 0);
    check("cudaStreamWaitEvent", cudaStreamWaitEvent(other, later, 0), 0);
    check("cudaStreamWaitEvent of none", cudaStreamWaitEvent(other, BOGUS, 0), 400);
    check("cudaEventSynchronize", cudaEventSynchronize(later), 0);
    check("cudaEventQuery", cudaEventQuery(later), 0);
    check("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, event, later), 0);
    check_true("time goes forward", milliseconds >= 0 && milliseconds < 60000);
#if CUDA == 12
    check("cudaEventElapsedTime_v2", cudaEventElapsedTime_v2(&milliseconds, event, later), 0);
#endif
    check("cudaEventElapsedTime null", cudaEventElapsedTime(NULL, event, later), 1);
    check("cudaEventRecord of none", cudaEventRecord(BOGUS, stream), 400);
    check("cudaEventRecord in none", cudaEventRecord(event, BOGUS), 400);
    check("cudaEventDestroy", cudaEventDestroy(event), 0);
    check("cudaEventDestroy again", cudaEventDestroy(event), 400);
    check("cudaEventSynchronize of none", cudaEventSynchronize(event), 400);
    void *quiet = NULL;
    check("cudaEventCreateWithFlags without time", cudaEventCreateWithFlags(&quiet, 2), 0);
    cudaEventRecord(quiet, stream);
    cudaEventSynchronize(quiet);
    check("cudaEventElapsedTime without time", cudaEventElapsedTime(&milliseconds, quiet, later), 400);
    cudaEventDestroy(quiet);
    cudaEventDestroy(later);
    cudaStreamSynchronize(other);
    check("cudaStreamDestroy", cudaStreamDestroy(stream), 0);
    check("cudaStreamDestroy other", cudaStreamDestroy(other), 0);
    cudaFree(memory);
}

#endif
