/* Graphs. Part of runtime.c. */
#ifndef VGPU_STANDINS_RUNTIME_GRAPHS_H
#define VGPU_STANDINS_RUNTIME_GRAPHS_H

#include "../check.h"
#include "api.h"

static void graphs(void)
{
    void *stream = NULL, *graph = NULL, *exec = NULL, *memory = NULL;
    unsigned status = 99;
    static unsigned char in[1000], got[1000];
    cudaStreamCreateWithFlags(&stream, 1);
    cudaMalloc(&memory, 4096);
    cudaMemset(memory, 0, 4096);
    check("cudaStreamIsCapturing", cudaStreamIsCapturing(stream, &status), 0);
    check("it is not", status, 0);
    check("cudaStreamIsCapturing null", cudaStreamIsCapturing(stream, NULL), 1);
    check("cudaStreamBeginCapture of stream 0", cudaStreamBeginCapture(NULL, 2), 900);
    check_either("cudaStreamEndCapture of none", cudaStreamEndCapture(stream, &graph), 401, 1);
    check("cudaStreamBeginCapture bad mode", cudaStreamBeginCapture(stream, 9), 1);
    check("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, 2), 0);
    check("cudaStreamIsCapturing in it", cudaStreamIsCapturing(stream, &status), 0);
    check("it is", status, 1);
    check("captured fill", cudaMemsetAsync(memory, 0x33, 1000, stream), 0);
    check("captured copy", cudaMemcpyAsync((char *)memory + 1000, memory, 1000, D2D, stream), 0);
    uint64_t id = 0;
    void *captured = NULL, *const *newest = NULL;
    const void *edges = NULL;
    size_t count = 0;
#if CUDA == 12
    check("cudaStreamGetCaptureInfo", cudaStreamGetCaptureInfo(stream, &status, &id), 0);
    check("cudaStreamGetCaptureInfo null", cudaStreamGetCaptureInfo(stream, NULL, &id), 1);
    check("cudaStreamGetCaptureInfo_v2", cudaStreamGetCaptureInfo_v2(stream, &status, &id, &captured, &newest, &count), 0);
    check_true("the capture has a graph and a last node", captured && newest && count == 1);
    check("cudaStreamGetCaptureInfo_v3", cudaStreamGetCaptureInfo_v3(stream, &status, &id, &captured, &newest, &edges, &count), 0);
#else
    check("cudaStreamGetCaptureInfo", cudaStreamGetCaptureInfo(stream, &status, &id, &captured, &newest, &edges, &count), 0);
    check("cudaStreamGetCaptureInfo null", cudaStreamGetCaptureInfo(stream, NULL, &id, NULL, NULL, NULL, NULL), 1);
#endif
    check_true("the capture has a number, a graph and a last node", status == 1 && id && captured && newest && count == 1);
    check("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph), 0);
    check("cudaMemcpy before the launch", cudaMemcpy(got, (char *)memory + 1000, 1000, D2H), 0);
    same("nothing has been done", got, in, 1000);
    size_t nodes = 0;
    check("cudaGraphGetNodes", cudaGraphGetNodes(graph, NULL, &nodes), 0);
    check("two nodes", (long long)nodes, 2);
    void *node[2] = {NULL, NULL};
    unsigned kind = 99;
    check("cudaGraphGetNodes into room", cudaGraphGetNodes(graph, node, &nodes), 0);
    check("cudaGraphNodeGetType", cudaGraphNodeGetType(node[0], &kind), 0);
    check_true("a fill or a copy", kind == 1 || kind == 2);
    check("cudaGraphNodeGetType null", cudaGraphNodeGetType(node[0], NULL), 1);
    check("cudaGraphGetNodes null", cudaGraphGetNodes(graph, NULL, NULL), 1);
    nodes = 1;
    check("cudaGraphGetRootNodes", cudaGraphGetRootNodes(graph, node, &nodes), 0);
    check("one node depends on none", (long long)nodes, 1);
    if (!graphs_run) {
        skip("instances of graphs", "the device runs none");
        check("cudaGraphDestroy", cudaGraphDestroy(graph), 0);
        cudaFree(memory);
        cudaStreamDestroy(stream);
        return;
    }
    void *clone = NULL;
    check("cudaGraphClone", cudaGraphClone(&clone, graph), 0);
    check("cudaGraphClone null", cudaGraphClone(NULL, graph), 1);
    check("cudaGraphDestroy of the clone", cudaGraphDestroy(clone), 0);
    check("cudaGraphInstantiate null", cudaGraphInstantiate(NULL, graph, 0), 1);
    check("cudaGraphInstantiate", cudaGraphInstantiate(&exec, graph, 0), 0);
    uint64_t flags = 99;
    check("cudaGraphExecGetFlags", cudaGraphExecGetFlags(exec, &flags), 0);
    check("no flags", (long long)flags, 0);
    check("cudaGraphExecGetFlags null", cudaGraphExecGetFlags(exec, NULL), 1);
    check("cudaGraphUpload", cudaGraphUpload(exec, stream), 0);
    check("cudaGraphLaunch", cudaGraphLaunch(exec, stream), 0);
    check("its synchronize", cudaStreamSynchronize(stream), 0);
    check("cudaMemcpy after the launch", cudaMemcpy(got, (char *)memory + 1000, 1000, D2H), 0);
    memset(in, 0x33, sizeof in);
    same("both nodes have been done", got, in, 1000);

    void *changed = NULL;
    cudaStreamBeginCapture(stream, 2);
    cudaMemsetAsync(memory, 0x44, 1000, stream);
    cudaMemcpyAsync((char *)memory + 1000, memory, 1000, D2D, stream);
    check("cudaStreamEndCapture of the same shape", cudaStreamEndCapture(stream, &changed), 0);
    struct {
        int result;
        void *node, *from;
    } info = {99, NULL, NULL};
    check("cudaGraphExecUpdate null", cudaGraphExecUpdate(exec, changed, NULL), 1);
    check("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, changed, &info), 0);
    check("the update's result", info.result, 0);
    check("cudaGraphLaunch after the update", cudaGraphLaunch(exec, stream), 0);
    cudaStreamSynchronize(stream);
    cudaMemcpy(got, (char *)memory + 1000, 1000, D2H);
    memset(in, 0x44, sizeof in);
    same("the new value has been filled in", got, in, 1000);
    cudaGraphDestroy(changed);
    cudaStreamBeginCapture(stream, 2);
    cudaMemsetAsync(memory, 0x44, 1000, stream);
    cudaStreamEndCapture(stream, &changed);
    check("cudaGraphExecUpdate of another shape", cudaGraphExecUpdate(exec, changed, &info), 910);
    check_true("the update says why", info.result != 0);
    check("cudaGraphDestroy", cudaGraphDestroy(changed), 0);

    cudaStreamBeginCapture(stream, 2);
    check("cudaStreamSynchronize in a capture", cudaStreamSynchronize(stream), 900);
    changed = BOGUS;
    check("cudaStreamEndCapture after that", cudaStreamEndCapture(stream, &changed), 901);
    check_true("there is no graph", changed == NULL);
    unsigned mode = 2;
    check("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&mode), 0);
    check("the mode was global", mode, 0);
    cudaThreadExchangeStreamCaptureMode(&mode);

    check("cudaGraphDestroy the first", cudaGraphDestroy(graph), 0);
    check("cudaGraphLaunch of the instance alone", cudaGraphLaunch(exec, stream), 0);
    check("cudaGraphExecDestroy", cudaGraphExecDestroy(exec), 0);
    check_either("cudaGraphLaunch of none", cudaGraphLaunch(exec, stream), 400, 1);
    check_either("cudaGraphExecDestroy again", cudaGraphExecDestroy(exec), 400, 1);
    check("cudaGraphCreate", cudaGraphCreate(&graph, 0), 0);
    void *first = NULL, *second = NULL;
    const fill_node filling = {memory, 0, 0x55, 1, 1000, 1};
    check("cudaGraphAddEmptyNode", cudaGraphAddEmptyNode(&first, graph, NULL, 0), 0);
    check("cudaGraphAddEmptyNode null", cudaGraphAddEmptyNode(NULL, graph, NULL, 0), 1);
    check("cudaGraphAddMemsetNode", cudaGraphAddMemsetNode(&second, graph, &first, 1, &filling), 0);
    check("cudaGraphAddMemsetNode null", cudaGraphAddMemsetNode(&second, graph, &first, 1, NULL), 1);
    instantiation how = {0, NULL, NULL, 99};
    check("cudaGraphInstantiateWithParams", cudaGraphInstantiateWithParams(&exec, graph, &how), 0);
    check("the instantiation's result", how.result, 0);
    check("cudaGraphInstantiateWithParams null", cudaGraphInstantiateWithParams(&exec, graph, NULL), 1);
    check("cudaGraphLaunch of what was built", cudaGraphLaunch(exec, stream), 0);
    cudaStreamSynchronize(stream);
    cudaMemcpy(got, memory, 1000, D2H);
    memset(in, 0x55, sizeof in);
    same("the fill has been done", in, got, 1000);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaGraphCreate(&graph, 0);
    check("cudaGraphInstantiateWithFlags of nothing", cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
    check("cudaGraphLaunch of nothing", cudaGraphLaunch(exec, stream), 0);
    cudaStreamSynchronize(stream);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaFree(memory);
    cudaStreamDestroy(stream);
}

#endif
