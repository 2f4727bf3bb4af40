/* Graphs. Part of driver.c. */
#ifndef VGPU_STANDINS_DRIVER_GRAPHS_H
#define VGPU_STANDINS_DRIVER_GRAPHS_H

#include "common.h"

static void graphs(void)
{
    void *stream = NULL, *graph = NULL, *exec = NULL, *clone = NULL;
    unsigned capturing = 99, kind = 99;
    uint64_t id = 0;
    size_t count = 0;
    address memory = 0;
    static unsigned char in[1000], got[1000];
    cuStreamCreate(&stream, 1);
    cuMemAlloc_v2(&memory, 4096);
    cuMemsetD8_v2(memory, 0, 4096);
    check("cuStreamBeginCapture of stream 0", cuStreamBeginCapture_v2(NULL, 0), 900);
    check("cuStreamBeginCapture", cuStreamBeginCapture_v2(stream, 2), 0);
    check("cuStreamBeginCapture again", cuStreamBeginCapture_v2(stream, 2), 401);
    check("cuStreamIsCapturing", cuStreamIsCapturing(stream, &capturing), 0);
    check("it is", capturing, 1);
    check("captured fill", cuMemsetD8Async(memory, 0x21, 1000, stream), 0);
    check("cuStreamGetCaptureInfo", cuStreamGetCaptureInfo_v2(stream, &capturing, &id, &graph, NULL, &count), 0);
    check_true("the capture has a number, a graph and a last node", capturing == 1 && id && graph && count == 1);
    check("captured copy", cuMemcpyDtoDAsync_v2(memory + 1000, memory, 1000, stream), 0);
    check("cuStreamEndCapture", cuStreamEndCapture(stream, &graph), 0);
    check("cuGraphGetNodes", cuGraphGetNodes(graph, NULL, &count), 0);
    check("two nodes", (long long)count, 2);
    void *nodes[2] = {NULL, NULL};
    check("cuGraphGetNodes into room", cuGraphGetNodes(graph, nodes, &count), 0);
    check("cuGraphNodeGetType", cuGraphNodeGetType(nodes[0], &kind), 0);
    check_true("a fill or a copy", kind == 1 || kind == 2);
    check("cuGraphClone", cuGraphClone(&clone, graph), 0);
    if (graphs_run) {
        check("cuGraphInstantiate", cuGraphInstantiateWithFlags(&exec, clone, 0), 0);
        check("cuGraphLaunch", cuGraphLaunch(exec, stream), 0);
        check("cuStreamSynchronize", cuStreamSynchronize(stream), 0);
        check("cuMemcpyDtoH after the launch", cuMemcpyDtoH_v2(got, memory + 1000, 1000), 0);
        memset(in, 0x21, sizeof in);
        same("both nodes have been done", in, got, 1000);
        check("cuGraphExecDestroy", cuGraphExecDestroy(exec), 0);
        check_either("cuGraphExecDestroy again", cuGraphExecDestroy(exec), 400, 1);
    } else {
        skip("instances of graphs", "the device runs none");
    }
    check("cuGraphDestroy", cuGraphDestroy(graph), 0);
    check_either("cuGraphDestroy again", cuGraphDestroy(graph), 400, 1);
    check("cuGraphDestroy of the clone", cuGraphDestroy(clone), 0);
    check("cuStreamBeginCapture for a call that is not allowed", cuStreamBeginCapture_v2(stream, 0), 0);
    check("cuStreamSynchronize in a capture", cuStreamSynchronize(stream), 900);
    check("cuStreamEndCapture after it", cuStreamEndCapture(stream, &graph), 901);
    cuMemFree_v2(memory);
    cuStreamDestroy_v2(stream);
}

#endif
