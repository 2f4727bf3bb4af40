/* Graphs. Part of driver.c. */
#ifndef VGPU_STANDINS_DRIVER_GRAPHS_H
#define VGPU_STANDINS_DRIVER_GRAPHS_H

#include "../check.h"
#include "api.h"

/* A graph that fills and copies, and its clone. */
static void instances(void *graph, void *clone, void *stream, address memory)
{
    void *exec = NULL, *node = NULL;
    uint64_t flags = 99;
    static unsigned char in[1000], got[1000];
    check("cuGraphInstantiate", cuGraphInstantiateWithFlags(&exec, clone, 0), 0);
    check("cuGraphInstantiate null", cuGraphInstantiateWithFlags(NULL, clone, 0), 1);
    check("cuGraphExecGetFlags", cuGraphExecGetFlags(exec, &flags), 0);
    check("no flags", (long long)flags, 0);
    check("cuGraphUpload", cuGraphUpload(exec, stream), 0);
    check("cuGraphLaunch", cuGraphLaunch(exec, stream), 0);
    check("cuStreamSynchronize", cuStreamSynchronize(stream), 0);
    check("cuMemcpyDtoH after the launch", cuMemcpyDtoH_v2(got, memory + 1000, 1000), 0);
    memset(in, 0x21, sizeof in);
    same("both nodes have been done", in, got, 1000);
    int result = 99;
    struct {
        int result;
        void *node, *from;
    } info = {99, NULL, NULL};
    check("cuGraphExecUpdate of old", cuGraphExecUpdate(exec, graph, &node, &result), 0);
    check("its result", result, 0);
    check("cuGraphExecUpdate", cuGraphExecUpdate_v2(exec, graph, &info), 0);
    check("its result too", info.result, 0);
    check("cuGraphExecDestroy", cuGraphExecDestroy(exec), 0);
    check_either("cuGraphExecDestroy again", cuGraphExecDestroy(exec), 400, 1);
    check("cuGraphInstantiate of old", cuGraphInstantiate(&exec, graph, NULL, NULL, 0), 0);
    cuGraphExecDestroy(exec);
    check("cuGraphInstantiate_v2", cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0), 0);
    cuGraphExecDestroy(exec);

    void *built = NULL, *first = NULL, *second = NULL, *context = NULL;
    cuCtxGetCurrent(&context);
    const fill_node filling = {memory, 0, 0x31, 1, 1000, 1};
    check("cuGraphCreate", cuGraphCreate(&built, 0), 0);
    check("cuGraphCreate bad flags", cuGraphCreate(&first, 1), 1);
    check("cuGraphAddEmptyNode", cuGraphAddEmptyNode(&first, built, NULL, 0), 0);
    check("cuGraphAddMemsetNode", cuGraphAddMemsetNode(&second, built, &first, 1, &filling, context), 0);
    check_true("cuGraphAddEmptyNode after none", cuGraphAddEmptyNode(&node, built, (void *[]){BOGUS}, 1) != 0);
    instantiation how = {0, NULL, NULL, 99};
    check("cuGraphInstantiateWithParams", cuGraphInstantiateWithParams(&exec, built, &how), 0);
    check("the instantiation's result", how.result, 0);
    check("cuGraphLaunch of what was built", cuGraphLaunch(exec, stream), 0);
    check("cuStreamSynchronize after it", cuStreamSynchronize(stream), 0);
    cuMemcpyDtoH_v2(got, memory, 1000);
    memset(in, 0x31, sizeof in);
    same("the fill has been done", in, got, 1000);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(built);
}

static void graphs(void)
{
    void *stream = NULL, *graph = NULL, *clone = NULL;
    unsigned capturing = 99, kind = 99;
    uint64_t id = 0;
    size_t count = 0;
    address memory = 0;
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
    void *const *newest = NULL;
    const void *edges = NULL;
    check("cuStreamGetCaptureInfo_v3", cuStreamGetCaptureInfo_v3(stream, &capturing, &id, &graph, &newest, &edges, &count), 0);
    void *last = newest ? newest[0] : NULL;
    check("cuStreamUpdateCaptureDependencies", cuStreamUpdateCaptureDependencies(stream, &last, 1, 1), 0);
    check("cuStreamUpdateCaptureDependencies_v2", cuStreamUpdateCaptureDependencies_v2(stream, &last, NULL, 1, 1), 0);
    unsigned mode = 2;
    check("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode), 0);
    check("the mode was global", mode, 0);
    cuThreadExchangeStreamCaptureMode(&mode);
    check("captured copy", cuMemcpyDtoDAsync_v2(memory + 1000, memory, 1000, stream), 0);
    check("cuStreamEndCapture", cuStreamEndCapture(stream, &graph), 0);
    check("cuGraphGetNodes", cuGraphGetNodes(graph, NULL, &count), 0);
    check("two nodes", (long long)count, 2);
    void *nodes[2] = {NULL, NULL};
    check("cuGraphGetNodes into room", cuGraphGetNodes(graph, nodes, &count), 0);
    check("cuGraphNodeGetType", cuGraphNodeGetType(nodes[0], &kind), 0);
    check_true("a fill or a copy", kind == 1 || kind == 2);
    check("cuGraphClone", cuGraphClone(&clone, graph), 0);
    count = 2;
    check("cuGraphGetRootNodes", cuGraphGetRootNodes(graph, nodes, &count), 0);
    check("one node depends on none", (long long)count, 1);
    void *root = nodes[0], *before[2];
    count = 2;
    check("cuGraphNodeGetDependencies of it", cuGraphNodeGetDependencies(root, before, &count), 0);
    check("it depends on none", (long long)count, 0);
    if (graphs_run)
        instances(graph, clone, stream, memory);
    else
        skip("instances of graphs", "the device runs none");
    check("cuGraphDestroy", cuGraphDestroy(graph), 0);
    check_either("cuGraphDestroy again", cuGraphDestroy(graph), 400, 1);
    check("cuGraphDestroy of the clone", cuGraphDestroy(clone), 0);
    check("cuStreamBeginCapture of old", cuStreamBeginCapture(stream), 0);
    check("cuStreamGetCaptureInfo of old", cuStreamGetCaptureInfo(stream, &capturing, &id), 0);
    check("it is captured", capturing, 1);
    cuStreamEndCapture(stream, &graph);
    cuGraphDestroy(graph);
    check("cuStreamBeginCapture for a call that is not allowed", cuStreamBeginCapture_v2(stream, 0), 0);
    check("cuStreamSynchronize in a capture", cuStreamSynchronize(stream), 900);
    check("cuStreamEndCapture after it", cuStreamEndCapture(stream, &graph), 901);
    cuMemFree_v2(memory);
    cuStreamDestroy_v2(stream);
}

#endif
