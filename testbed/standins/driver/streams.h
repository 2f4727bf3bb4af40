/* Streams and events. Part of driver.c. */
#ifndef VGPU_STANDINS_DRIVER_STREAMS_H
#define VGPU_STANDINS_DRIVER_STREAMS_H

#include "../check.h"
#include "api.h"

static void streams_and_events(void)
{
    void *stream = NULL, *other = NULL, *event = NULL, *later = NULL, *context = NULL, *current = NULL;
    unsigned flags = 99;
    int priority = 99, least = 9, greatest = 9;
    uint64_t id = 0, second = 0;
    cuCtxGetStreamPriorityRange(&least, &greatest);
    check("cuStreamCreate null", cuStreamCreate(NULL, 0), 1);
    check("cuStreamCreate bad flags", cuStreamCreate(&stream, 77), 1);
    check("cuStreamCreate", cuStreamCreate(&stream, 0), 0);
    check("cuStreamCreateWithPriority", cuStreamCreateWithPriority(&other, 1, -1), 0);
    check("cuStreamGetFlags", cuStreamGetFlags(other, &flags), 0);
    check("the flags are those of its creation", flags, 1);
    check("cuStreamGetPriority", cuStreamGetPriority(other, &priority), 0);
    check("the priority is that of its creation, within the range", priority, greatest < -1 ? -1 : greatest);
    check("cuStreamGetId", cuStreamGetId(stream, &id), 0);
    check("cuStreamGetId other", cuStreamGetId(other, &second), 0);
    check_true("numbers of streams differ", id != second);
    check("cuStreamGetCtx", cuStreamGetCtx(stream, &context), 0);
    cuCtxGetCurrent(&current);
    check_true("it is the current one", context == current);
    void *green = BOGUS;
    int device = -1;
    check("cuStreamGetCtx_v2", cuStreamGetCtx_v2(stream, &context, &green), 0);
    check_true("it is the current one, and no green one", context == current && green == NULL);
    check("cuStreamGetDevice", cuStreamGetDevice(stream, &device), 0);
    check("a stream's device", device, 0);
    check("cuStreamQuery", cuStreamQuery(stream), 0);
    check("cuStreamQuery of none", cuStreamQuery(BOGUS), 400);
    check("cuStreamSynchronize", cuStreamSynchronize(stream), 0);
    check("cuStreamSynchronize of none", cuStreamSynchronize(BOGUS), 400);
    check("cuStreamSynchronize legacy", cuStreamSynchronize((void *)1), 0);
    check("cuStreamGetFlags of none", cuStreamGetFlags(BOGUS, &flags), 400);

    check("cuEventCreate null", cuEventCreate(NULL, 0), 1);
    check("cuEventCreate bad flags", cuEventCreate(&event, 0x100), 1);
    check("cuEventCreate", cuEventCreate(&event, 0), 0);
    check("cuEventCreate another", cuEventCreate(&later, 0), 0);
    check("cuEventQuery not recorded", cuEventQuery(event), 0);
    float milliseconds = -1;
    check("cuEventElapsedTime not recorded", cuEventElapsedTime(&milliseconds, event, later), 400);
    check("cuEventRecord", cuEventRecord(event, stream), 0);
    address memory = 0;
    cuMemAlloc_v2(&memory, 1 << 20);
    check("work between", cuMemsetD8Async(memory, 0, 1 << 20, stream), 0);
    check("cuEventRecord another", cuEventRecord(later, stream), 0);
    check("cuStreamWaitEvent", cuStreamWaitEvent(other, later, 0), 0);
    check("cuStreamWaitEvent of none", cuStreamWaitEvent(other, BOGUS, 0), 400);
    check("cuStreamWaitEvent bad flags", cuStreamWaitEvent(other, later, 0x100), 1);
    check("cuEventSynchronize", cuEventSynchronize(later), 0);
    check("cuEventQuery", cuEventQuery(later), 0);
    check("cuEventElapsedTime", cuEventElapsedTime(&milliseconds, event, later), 0);
    check_true("time goes forward", milliseconds >= 0 && milliseconds < 60000);
    check("cuEventElapsedTime_v2", cuEventElapsedTime_v2(&milliseconds, event, later), 0);
    check("cuEventRecordWithFlags", cuEventRecordWithFlags(later, stream, 0), 0);
    check("cuEventRecordWithFlags unknown", cuEventRecordWithFlags(later, stream, 0x100), 1);
    check("cuEventElapsedTime null", cuEventElapsedTime(NULL, event, later), 1);
    check("cuEventRecord of none", cuEventRecord(BOGUS, stream), 400);
    check("cuEventDestroy", cuEventDestroy_v2(event), 0);
    check("cuEventDestroy again", cuEventDestroy_v2(event), 400);
    check("cuEventQuery of none", cuEventQuery(event), 400);
    check("cuEventDestroy of old", cuEventDestroy(later), 0);
    cuStreamSynchronize(other);
    check("cuStreamDestroy", cuStreamDestroy_v2(stream), 0);
    check("cuStreamDestroy again", cuStreamDestroy_v2(stream), 400);
    check("cuStreamDestroy of old", cuStreamDestroy(other), 0);
    check("cuStreamDestroy of stream 0", cuStreamDestroy_v2(NULL), 400);
    cuMemFree_v2(memory);
}

#endif
