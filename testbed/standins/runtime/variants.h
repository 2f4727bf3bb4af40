/* The variants for programs compiled with the per-thread default stream, which have it where others have stream 0. Part
 * of runtime.c. */
#ifndef VGPU_STANDINS_RUNTIME_VARIANTS_H
#define VGPU_STANDINS_RUNTIME_VARIANTS_H

#include "../check.h"
#include "api.h"

static void variants(void)
{
    static unsigned char in[400], got[400];
    void *memory = NULL, *another = NULL, *event = NULL, *graph = NULL, *exec = NULL;
    unsigned flags = 99, status = 99;
    int priority = 99, ordinal = 99;
    uint64_t id = 0, legacy = 0;
    fill(in, sizeof in, 21);
    check("cudaMallocAsync_ptsz", cudaMallocAsync_ptsz(&memory, 4096, NULL), 0);
    check("cudaMemset_ptds", cudaMemset_ptds(memory, 1, 400), 0);
    check("cudaMemsetAsync_ptsz", cudaMemsetAsync_ptsz(memory, 2, 300, NULL), 0);
    check("cudaMemset2D_ptds", cudaMemset2D_ptds(memory, 20, 3, 10, 10), 0);
    check("cudaMemset2DAsync_ptsz", cudaMemset2DAsync_ptsz(memory, 20, 4, 10, 5, NULL), 0);
    const pitched box = {memory, 20, 20, 4};
    const extent size = {20, 4, 5}, slice = {20, 4, 1};
    check("cudaMemset3D_ptds", cudaMemset3D_ptds(box, 5, slice), 0);
    check("cudaMemset3DAsync_ptsz", cudaMemset3DAsync_ptsz(box, 6, slice, NULL), 0);
    check("cudaMemcpy2D_ptds", cudaMemcpy2D_ptds(memory, 20, in, 20, 20, 20, H2D), 0);
    check("cudaMemcpy2DAsync_ptsz", cudaMemcpy2DAsync_ptsz(got, 20, memory, 20, 20, 20, D2H, NULL), 0);
    check("cudaStreamSynchronize_ptsz", cudaStreamSynchronize_ptsz(NULL), 0);
    same("rows come back by the per-thread stream", in, got, sizeof in);
    memset(got, 0, sizeof got);
    copy3d out = {.src = box, .dst = {got, 20, 20, 4}, .extent = size, .kind = D2H};
    check("cudaMemcpy3D_ptds", cudaMemcpy3D_ptds(&out), 0);
    same("slices come back by the per-thread stream", in, got, sizeof in);
    check("cudaMemcpy3DAsync_ptsz", cudaMemcpy3DAsync_ptsz(&out, NULL), 0);
    const copy3d_peer between = {.src = box, .dst = box, .dst_pos = {0, 0, 1}, .extent = slice};
    check("cudaMemcpy3DPeer_ptds", cudaMemcpy3DPeer_ptds(&between), 0);
    check("cudaMemcpy3DPeerAsync_ptsz", cudaMemcpy3DPeerAsync_ptsz(&between, NULL), 0);

    cudaEventCreate(&event);
    check("cudaEventRecord_ptsz", cudaEventRecord_ptsz(event, NULL), 0);
    check("cudaEventRecordWithFlags_ptsz", cudaEventRecordWithFlags_ptsz(event, NULL, 0), 0);
    check("cudaStreamWaitEvent_ptsz", cudaStreamWaitEvent_ptsz(NULL, event, 0), 0);
    check("cudaEventSynchronize", cudaEventSynchronize(event), 0);
    cudaEventDestroy(event);
    check_either("cudaStreamQuery_ptsz", cudaStreamQuery_ptsz(NULL), 0, 600);
    check("cudaStreamGetFlags_ptsz", cudaStreamGetFlags_ptsz(NULL, &flags), 0);
    check("cudaStreamGetPriority_ptsz", cudaStreamGetPriority_ptsz(NULL, &priority), 0);
    check("cudaStreamGetDevice_ptsz", cudaStreamGetDevice_ptsz(NULL, &ordinal), 0);
    check("the per-thread stream's device", ordinal, 0);
    check("cudaStreamGetId_ptsz", cudaStreamGetId_ptsz(NULL, &id), 0);
    cudaStreamGetId(NULL, &legacy);
    check_true("it is a stream of its own", id != legacy);
    check("cudaStreamIsCapturing_ptsz", cudaStreamIsCapturing_ptsz(NULL, &status), 0);
    check("it is not captured", status, 0);
    check("cudaStreamBeginCapture_ptsz", cudaStreamBeginCapture_ptsz(NULL, 2), 0);
#if CUDA == 12
    check("cudaStreamGetCaptureInfo_ptsz", cudaStreamGetCaptureInfo_ptsz(NULL, &status, &id), 0);
    check("cudaStreamGetCaptureInfo_v2_ptsz", cudaStreamGetCaptureInfo_v2_ptsz(NULL, &status, &id, NULL, NULL, NULL), 0);
    check("cudaStreamGetCaptureInfo_v3_ptsz",
          cudaStreamGetCaptureInfo_v3_ptsz(NULL, &status, &id, NULL, NULL, NULL, NULL), 0);
#else
    check("cudaStreamGetCaptureInfo_ptsz", cudaStreamGetCaptureInfo_ptsz(NULL, &status, &id, NULL, NULL, NULL, NULL), 0);
#endif
    check("it is captured", status, 1);
    check("a captured fill", cudaMemsetAsync_ptsz(memory, 9, 400, NULL), 0);
    check("cudaStreamEndCapture_ptsz", cudaStreamEndCapture_ptsz(NULL, &graph), 0);
    if (graphs_run) {
        cudaGraphInstantiate(&exec, graph, 0);
        check("cudaGraphUpload_ptsz", cudaGraphUpload_ptsz(exec, NULL), 0);
        check("cudaGraphLaunch_ptsz", cudaGraphLaunch_ptsz(exec, NULL), 0);
        cudaStreamSynchronize_ptsz(NULL);
        cudaMemcpy(got, memory, 400, D2H);
        memset(in, 9, sizeof in);
        same("the fill has been done", in, got, 400);
        cudaGraphExecDestroy(exec);
    }
    cudaGraphDestroy(graph);
    check("cudaMallocAsync_ptsz another", cudaMallocAsync_ptsz(&another, 64, NULL), 0);
    check("cudaFreeAsync_ptsz", cudaFreeAsync_ptsz(another, NULL), 0);
    check("cudaFreeAsync_ptsz of nothing", cudaFreeAsync_ptsz(NULL, NULL), 0);
    cudaFree(memory);
}

#endif
