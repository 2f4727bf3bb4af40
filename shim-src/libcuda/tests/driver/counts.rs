//! Tests the exact number of messages, and of answered ones, that each kind of call takes. Where a number
//! grows here, a language model takes longer for each token.

use std::ptr;

use vgpu_abi::driver::{
    CUevent, CUgraph, CUgraphExec, CUmemAccessDesc, CUmemAllocationProp, CUmemLocation, CUstream,
};

use crate::executor::odd;
use crate::host::with_device;
use vgpu_conformance::calls::*;

const GRANULE: usize = 2 << 20;

/// Checks messages and round trips of a call that has been made once before.
fn costs(what: &str, messages: u64, round_trips: u64, mut call: impl FnMut()) {
    call();
    let before = counters();
    call();
    let after = counters();
    let cost = (after.messages - before.messages, after.round_trips - before.round_trips);
    assert_eq!(cost, (messages, round_trips), "{what}");
}

#[test]
fn every_way_costs_what_it_must() {
    with_device(
        "counts::every_way_costs_what_it_must",
        || odd("0000:00:05.0"),
        || {
            begin();
            let (stream, other) = (get!(CUstream, cuStreamCreate(1)), get!(CUstream, cuStreamCreate(1)));
            let event = get!(CUevent, cuEventCreate(2));
            let memory = alloc(16 << 20);
            let mut host = vec![0_u8; 8 << 20];
            let pinned = pinned(1 << 20);
            let image = fatbin(50);
            let module = get!(vgpu_abi::driver::CUmodule, cuModuleLoadData(image.as_ptr().cast()));
            let kernel = function(module, "nothing");

            costs("a launch", 1, 0, || assert_eq!(launch(kernel, stream, &mut []), 0));
            costs("a fill", 1, 0, || ok!(cuMemsetD8Async(memory, 1, 1000, stream)));
            costs("a copy within the device", 1, 0, || {
                ok!(cuMemcpyDtoDAsync_v2(memory, memory + (8 << 20), 1 << 20, stream));
            });
            for (bytes, parts) in
                [(4, 1), (4 << 10, 1), (64 << 10, 1), (100 << 10, 2), (1 << 20, 4), (8 << 20, 16)]
            {
                costs("a copy to the device", parts, 0, || {
                    ok!(cuMemcpyHtoDAsync_v2(memory, host.as_ptr().cast(), bytes, stream));
                });
                costs("a copy from the device", parts, 0, || {
                    ok!(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), memory, bytes, stream));
                });
            }
            costs("a copy of pinned memory to the device", 1, 0, || {
                ok!(cuMemcpyHtoDAsync_v2(memory, pinned.cast(), 1 << 20, stream));
            });
            costs("a copy of pinned memory from the device", 1, 0, || {
                ok!(cuMemcpyDtoHAsync_v2(pinned.cast(), memory, 1 << 20, stream));
            });
            ok!(cuCtxSynchronize());
            costs("an event's record", 1, 0, || ok!(cuEventRecord(event, stream)));
            costs("an event's synchronize", 0, 0, || ok!(cuEventSynchronize(event)));
            costs("a wait for an event that is over", 0, 0, || ok!(cuStreamWaitEvent(other, event, 0)));
            costs("work and a synchronize that only orders", 1, 0, || {
                ok!(cuMemsetD8Async(memory, 1, 1000, stream));
                ok!(cuStreamSynchronize(stream));
            });
            costs("a synchronize of the context", 1, 0, || ok!(cuCtxSynchronize()));
            costs("an event's life", 2, 0, || {
                let event = get!(CUevent, cuEventCreate(0));
                ok!(cuEventDestroy_v2(event));
            });
            costs("a stream's life", 2, 0, || {
                let stream = get!(CUstream, cuStreamCreate(0));
                ok!(cuStreamDestroy_v2(stream));
            });
            costs("memory", 2, 1, || ok!(cuMemFree_v2(alloc(1 << 20))));
            costs("memory in the order of a stream", 2, 1, || {
                let memory = get!(u64, cuMemAllocAsync(1 << 20, stream));
                ok!(cuMemFreeAsync(memory, stream));
            });
            let location = CUmemLocation { kind: 1, id: 0 };
            let (prop, rights) = (
                CUmemAllocationProp {
                    kind: 1,
                    handle_types: 0,
                    location,
                    win32: ptr::null_mut(),
                    flags: [0; 8],
                },
                CUmemAccessDesc { location, flags: 3 },
            );
            let range = get!(u64, cuMemAddressReserve(4 * GRANULE, 0, 0, 0));
            costs("memory at an address of the program's choice", 5, 1, || {
                let handle = get!(u64, cuMemCreate(GRANULE, &raw const prop, 0));
                ok!(cuMemMap(range, GRANULE, 0, handle, 0));
                ok!(cuMemSetAccess(range, GRANULE, &raw const rights, 1));
                ok!(cuMemRelease(handle));
                ok!(cuMemUnmap(range, GRANULE));
            });

            ok!(cuStreamBeginCapture_v2(stream, 2));
            for _ in 0..50 {
                assert_eq!(launch(kernel, stream, &mut []), 0);
            }
            let mut graph = CUgraph::NULL;
            ok!(cuStreamEndCapture(stream, &raw mut graph));
            let exec = get!(CUgraphExec, cuGraphInstantiateWithFlags(graph, 0));
            costs("a graph's launch", 1, 0, || ok!(cuGraphLaunch(exec, stream)));
            costs("an update that changes nothing", 0, 0, || {
                let mut result = 9;
                ok!(cuGraphExecUpdate(exec, graph, ptr::null_mut(), &raw mut result));
            });

            // What GGML does for a token: six small copies on the thread's stream, each between two
            // synchronizes, a graph, the result. Nine messages, of which one is waited for.
            let token = || {
                for _ in 0..6 {
                    ok!(cuStreamSynchronize(stream));
                    ok!(cuMemcpyHtoDAsync_v2(memory, host.as_ptr().cast(), 2048, CUstream(2)));
                    ok!(cuStreamSynchronize(CUstream(2)));
                }
                ok!(cuGraphLaunch(exec, stream));
                let logits = host.as_ptr().cast_mut();
                ok!(cuMemcpyDtoHAsync_v2(logits.cast(), memory, 128 << 10, stream));
                ok!(cuStreamSynchronize(stream));
            };
            costs("a token", 9, 0, token);

            costs("state", 0, 0, || {
                let mut value = 0_u64;
                ok!(cuPointerGetAttribute((&raw mut value).cast(), 2, memory));
                get!(i32, cuDeviceGetAttribute(16, 0));
                get!(i32, cuFuncGetAttribute(0, kernel));
                get!(i32, cuCtxGetDevice());
                let (mut capturing, mut priority) = (9, 9);
                ok!(cuStreamIsCapturing(stream, &raw mut capturing));
                ok!(cuStreamGetPriority(stream, &raw mut priority));
                ok!(cuStreamQuery(stream));
                ok!(cuEventQuery(event));
            });
        },
    );
}
