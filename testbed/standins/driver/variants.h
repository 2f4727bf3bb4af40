/* The entries for the per-thread default stream, which have it where others have stream 0. Part of driver.c. */
#ifndef VGPU_STANDINS_DRIVER_VARIANTS_H
#define VGPU_STANDINS_DRIVER_VARIANTS_H

#include "../check.h"
#include "api.h"

static void memory_variants(void)
{
    static unsigned char in[400], got[400];
    address p = 0, q = 0;
    void *context = NULL;
    cuCtxGetCurrent(&context);
    fill(in, sizeof in, 31);
    check("cuMemAllocAsync_ptsz", cuMemAllocAsync_ptsz(&p, 4096, NULL), 0);
    check("cuMemAllocAsync_ptsz another", cuMemAllocAsync_ptsz(&q, 4096, NULL), 0);
    check("cuMemsetD8_ptds", cuMemsetD8_v2_ptds(p, 1, 400), 0);
    check("cuMemsetD16_ptds", cuMemsetD16_v2_ptds(p, 2, 200), 0);
    check("cuMemsetD32_ptds", cuMemsetD32_v2_ptds(p, 3, 100), 0);
    check("cuMemsetD8Async_ptsz", cuMemsetD8Async_ptsz(p, 4, 400, NULL), 0);
    check("cuMemsetD16Async_ptsz", cuMemsetD16Async_ptsz(p, 5, 200, NULL), 0);
    check("cuMemsetD32Async_ptsz", cuMemsetD32Async_ptsz(p, 6, 100, NULL), 0);
    check("cuMemsetD2D8_ptds", cuMemsetD2D8_v2_ptds(p, 40, 7, 20, 10), 0);
    check("cuMemsetD2D16_ptds", cuMemsetD2D16_v2_ptds(p, 40, 8, 10, 10), 0);
    check("cuMemsetD2D32_ptds", cuMemsetD2D32_v2_ptds(p, 40, 9, 5, 10), 0);
    check("cuMemsetD2D8Async_ptsz", cuMemsetD2D8Async_ptsz(p, 40, 7, 20, 10, NULL), 0);
    check("cuMemsetD2D16Async_ptsz", cuMemsetD2D16Async_ptsz(p, 40, 8, 10, 10, NULL), 0);
    check("cuMemsetD2D32Async_ptsz", cuMemsetD2D32Async_ptsz(p, 40, 9, 5, 10, NULL), 0);
    check("cuMemcpyHtoDAsync_ptsz", cuMemcpyHtoDAsync_v2_ptsz(p, in, sizeof in, NULL), 0);
    check("cuMemcpyDtoDAsync_ptsz", cuMemcpyDtoDAsync_v2_ptsz(q, p, sizeof in, NULL), 0);
    check("cuMemcpyDtoHAsync_ptsz", cuMemcpyDtoHAsync_v2_ptsz(got, q, sizeof in, NULL), 0);
    check("cuStreamSynchronize_ptsz", cuStreamSynchronize_ptsz(NULL), 0);
    same("bytes come back by the per-thread stream", in, got, sizeof in);
    check("cuMemcpyDtoD_ptds", cuMemcpyDtoD_v2_ptds(p + 400, p, 400), 0);
    memset(got, 0, sizeof got);
    check("cuMemcpy_ptds", cuMemcpy_ptds((address)(uintptr_t)got, p + 400, 400), 0);
    same("bytes come back by addresses", in, got, sizeof in);
    check("cuMemcpyAsync_ptsz", cuMemcpyAsync_ptsz(p + 800, p, 400, NULL), 0);
    check("cuMemcpyPeer_ptds", cuMemcpyPeer_ptds(p + 800, context, p, context, 400), 0);
    check("cuMemcpyPeerAsync_ptsz", cuMemcpyPeerAsync_ptsz(p + 800, context, p, context, 400, NULL), 0);
    copy2d to = {.src = {.type = 1, .host = in, .pitch = 40}, .dst = {.type = 2, .device = p, .pitch = 40}, .width = 40, .height = 10};
    copy2d from = {.src = {.type = 2, .device = p, .pitch = 40}, .dst = {.type = 1, .host = got, .pitch = 40}, .width = 40, .height = 10};
    fill(in, sizeof in, 32);
    check("cuMemcpy2D_ptds", cuMemcpy2D_v2_ptds(&to), 0);
    check("cuMemcpy2DUnaligned_ptds", cuMemcpy2DUnaligned_v2_ptds(&from), 0);
    same("rows come back by the per-thread stream", in, got, sizeof in);
    check("cuMemcpy2DAsync_ptsz", cuMemcpy2DAsync_v2_ptsz(&from, NULL), 0);
    copy3d to3 = {.src = {.type = 1, .host = in, .pitch = 40, .height = 5}, .dst = {.type = 2, .device = p, .pitch = 40, .height = 5}, .width = 40, .height = 5, .depth = 2};
    copy3d from3 = {.src = {.type = 2, .device = p, .pitch = 40, .height = 5}, .dst = {.type = 1, .host = got, .pitch = 40, .height = 5}, .width = 40, .height = 5, .depth = 2};
    fill(in, sizeof in, 33);
    check("cuMemcpy3D_ptds", cuMemcpy3D_v2_ptds(&to3), 0);
    check("cuMemcpy3DAsync_ptsz", cuMemcpy3DAsync_v2_ptsz(&from3, NULL), 0);
    check("cuStreamSynchronize_ptsz after it", cuStreamSynchronize_ptsz(NULL), 0);
    same("slices come back by the per-thread stream", in, got, sizeof in);
    copy3d between = from3;
    between.src.context = context;
    between.dst = between.src;
    between.dst.device = q;
    check("cuMemcpy3DPeer_ptds", cuMemcpy3DPeer_ptds(&between), 0);
    check("cuMemcpy3DPeerAsync_ptsz", cuMemcpy3DPeerAsync_ptsz(&between, NULL), 0);
    check("cuMemFreeAsync_ptsz", cuMemFreeAsync_ptsz(q, NULL), 0);
    cuMemFree_v2(p);
}

static void stream_variants(void)
{
    void *event = NULL, *context = NULL, *current = NULL, *green = NULL, *graph = NULL, *exec = NULL, *node = NULL;
    void *const *newest = NULL;
    const void *edges = NULL;
    unsigned flags = 99, status = 99;
    int priority = 99, device = 99;
    uint64_t id = 0, legacy = 0;
    size_t count = 0;
    address p = 0;
    cuCtxGetCurrent(&current);
    cuMemAlloc_v2(&p, 400);
    cuEventCreate(&event, 0);
    check("cuEventRecord_ptsz", cuEventRecord_ptsz(event, NULL), 0);
    check("cuEventRecordWithFlags_ptsz", cuEventRecordWithFlags_ptsz(event, NULL, 0), 0);
    check("cuStreamWaitEvent_ptsz", cuStreamWaitEvent_ptsz(NULL, event, 0), 0);
    cuEventSynchronize(event);
    cuEventDestroy_v2(event);
    check_either("cuStreamQuery_ptsz", cuStreamQuery_ptsz(NULL), 0, 600);
    check("cuStreamGetFlags_ptsz", cuStreamGetFlags_ptsz(NULL, &flags), 0);
    check("cuStreamGetPriority_ptsz", cuStreamGetPriority_ptsz(NULL, &priority), 0);
    check("cuStreamGetDevice_ptsz", cuStreamGetDevice_ptsz(NULL, &device), 0);
    check("the per-thread stream's device", device, 0);
    check("cuStreamGetCtx_ptsz", cuStreamGetCtx_ptsz(NULL, &context), 0);
    check_true("the per-thread stream's context", context == current);
    check("cuStreamGetCtx_v2_ptsz", cuStreamGetCtx_v2_ptsz(NULL, &context, &green), 0);
    check("cuStreamGetId_ptsz", cuStreamGetId_ptsz(NULL, &id), 0);
    cuStreamGetId(NULL, &legacy);
    check_true("it is a stream of its own", id != legacy);
    check("cuStreamIsCapturing_ptsz", cuStreamIsCapturing_ptsz(NULL, &status), 0);
    check("it is not captured", status, 0);
    check("cuStreamBeginCapture_ptsz of old", cuStreamBeginCapture_ptsz(NULL), 0);
    check("cuStreamEndCapture_ptsz", cuStreamEndCapture_ptsz(NULL, &graph), 0);
    cuGraphDestroy(graph);
    check("cuStreamBeginCapture_ptsz", cuStreamBeginCapture_v2_ptsz(NULL, 2), 0);
    check("a captured fill", cuMemsetD8Async_ptsz(p, 9, 400, NULL), 0);
    check("cuStreamGetCaptureInfo_ptsz of old", cuStreamGetCaptureInfo_ptsz(NULL, &status, &id), 0);
    check("it is captured", status, 1);
    check("cuStreamGetCaptureInfo_v2_ptsz", cuStreamGetCaptureInfo_v2_ptsz(NULL, &status, &id, &graph, &newest, &count), 0);
    check("cuStreamGetCaptureInfo_v3_ptsz", cuStreamGetCaptureInfo_v3_ptsz(NULL, &status, &id, &graph, &newest, &edges, &count), 0);
    node = count && newest ? newest[0] : NULL;
    check("cuStreamUpdateCaptureDependencies_ptsz", cuStreamUpdateCaptureDependencies_ptsz(NULL, &node, 1, 1), 0);
    check("cuStreamUpdateCaptureDependencies_v2_ptsz", cuStreamUpdateCaptureDependencies_v2_ptsz(NULL, &node, NULL, 1, 1), 0);
    check("cuStreamEndCapture_ptsz of a fill", cuStreamEndCapture_ptsz(NULL, &graph), 0);
    if (graphs_run) {
        instantiation how = {0, NULL, NULL, 99};
        static unsigned char in[400], got[400];
        check("cuGraphInstantiateWithParams_ptsz", cuGraphInstantiateWithParams_ptsz(&exec, graph, &how), 0);
        check("cuGraphUpload_ptsz", cuGraphUpload_ptsz(exec, NULL), 0);
        check("cuGraphLaunch_ptsz", cuGraphLaunch_ptsz(exec, NULL), 0);
        cuStreamSynchronize_ptsz(NULL);
        cuMemcpyDtoH_v2(got, p, 400);
        memset(in, 9, sizeof in);
        same("the fill has been done", in, got, 400);
        cuGraphExecDestroy(exec);
    }
    cuGraphDestroy(graph);
    cuMemFree_v2(p);
}

#endif
