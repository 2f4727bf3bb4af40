//! One case for each rule. The last call of a case is refused by that rule and with its status, and no
//! earlier call is refused.

use std::ffi::c_void;
use std::ptr;
use std::thread;

use rustix::mm::{MapFlags, ProtFlags, mmap};
use serde_json::{Value, json};
use vgpu_abi::blas::BlasStatus;
use vgpu_abi::driver::{
    CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUlaunchAttribute, CUlaunchConfig,
    CUmemAccessDesc, CUmemLocation, CUstream, KernelNodeParams,
};
use vgpu_recording_cuda::Rule;

use crate::bench::{PROP, RecordingBench};
use crate::matmuls::TestProduct;
use crate::{edges, links, matmuls};

const MIB: usize = 1 << 20;
const NONE: CUstream = CUstream::NULL;
const NON_BLOCKING: u32 = 1;
const RELAXED: u32 = 2;

/// Returns an address of host memory that tests register. It is never read or written.
fn host() -> *mut c_void {
    ptr::without_provenance_mut(0x10_0000_0000)
}

fn fill(bench: &RecordingBench, to: u64, stream: CUstream) -> u32 {
    cu!(bench, cuMemsetD8Async(to, 0, 16, stream))
}

fn begin(bench: &RecordingBench, stream: CUstream) {
    assert_eq!(cu!(bench, cuStreamBeginCapture_v2(stream, RELAXED)), 0);
}

fn end(bench: &RecordingBench, stream: CUstream) -> u32 {
    let mut graph = CUgraph::NULL;
    cu!(bench, cuStreamEndCapture(stream, &raw mut graph))
}

/// Makes the next node of a capture depend on exactly these nodes. Returns the status.
fn depend(bench: &RecordingBench, stream: CUstream, nodes: &mut [CUgraphNode]) -> u32 {
    cu!(bench, cuStreamUpdateCaptureDependencies(stream, nodes.as_mut_ptr(), nodes.len(), 1))
}

/// Captures what `give` adds to a stream in a graph and instantiates it. Returns the graph, its first node
/// and the instance.
fn graph_of(
    bench: &RecordingBench,
    give: impl FnOnce(CUstream) -> u32,
) -> (CUgraph, CUgraphNode, CUgraphExec) {
    let (stream, mut graph, mut exec) = (bench.stream(NON_BLOCKING), CUgraph::NULL, CUgraphExec::NULL);
    begin(bench, stream);
    assert_eq!(give(stream), 0);
    let node = bench.captured(stream).2[0];
    assert_eq!(cu!(bench, cuStreamEndCapture(stream, &raw mut graph)), 0);
    assert_eq!(cu!(bench, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)), 0);
    (graph, node, exec)
}

/// Creates a graph with a fill as its first node, and instantiates it.
fn filled(bench: &RecordingBench) -> (CUgraph, CUgraphNode, CUgraphExec) {
    graph_of(bench, |stream| fill(bench, bench.memory(64), stream))
}

/// Creates a graph with a launch as its first node, and instantiates it.
fn launched(bench: &RecordingBench) -> (CUgraph, CUgraphNode, CUgraphExec) {
    graph_of(bench, |stream| bench.launch(bench.function(), 32, 0, 12, stream))
}

fn empty_node(bench: &RecordingBench, graph: CUgraph, after: &[CUgraphNode]) -> u32 {
    let mut node = CUgraphNode::NULL;
    cu!(bench, cuGraphAddEmptyNode(&raw mut node, graph, after.as_ptr(), after.len()))
}

/// Sets a node of an instantiated graph to a launch of a function of a context, and returns the status.
fn set_kernel(
    bench: &RecordingBench,
    exec: CUgraphExec,
    node: CUgraphNode,
    function: CUfunction,
    context: CUcontext,
) -> u32 {
    let mut pointers = [ptr::null_mut(); 2];
    let params = KernelNodeParams {
        function,
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        params: pointers.as_mut_ptr(),
        extra: ptr::null_mut(),
        kernel: vgpu_abi::driver::CUkernel::NULL,
        context,
    };
    cu!(bench, cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const params))
}

pub fn set_access(bench: &RecordingBench, address: u64, bytes: usize) -> u32 {
    let right = CUmemAccessDesc { location: CUmemLocation { kind: 1, id: 0 }, flags: 3 };
    cu!(bench, cuMemSetAccess(address, bytes, &raw const right, 1))
}

fn launch_with(bench: &RecordingBench, attribute: CUlaunchAttribute) -> u32 {
    let function = bench.function();
    let config = CUlaunchConfig {
        grid: [3, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
        stream: NONE,
        attributes: &raw const attribute,
        attribute_count: 1,
    };
    let mut params = [ptr::null_mut(); 2];
    cu!(bench, cuLaunchKernelEx(&raw const config, function, params.as_mut_ptr(), ptr::null_mut()))
}

unsafe extern "C" fn call_back(library: *mut c_void) {
    // SAFETY: the case passes its bench, which waits for this function.
    let bench = unsafe { &*library.cast::<RecordingBench>() };
    let mut device = 0;
    cu!(bench, cuDeviceGet(&raw mut device, 0));
}

/// A rule, the options of the library, and calls of which the last breaks the rule. The function returns the
/// status of the last call.
pub type RuleCase = (Rule, fn() -> Value, fn(&RecordingBench) -> u32);

pub fn usual() -> Value {
    json!({})
}

/// Cases that start without a call of `cuInit`.
const COLD: &[RuleCase] = &[
    (Rule::NotInitialized, usual, |b| cu!(b, cuDeviceGetCount(ptr::from_mut(&mut 0)))),
    (Rule::InitFlags, usual, |b| cu!(b, cuInit(1))),
];

/// Cases that start with a current context.
const CASES: &[RuleCase] = &[
    (Rule::InHostFunction, usual, |b| {
        let data = ptr::from_ref(b).cast_mut().cast();
        assert_eq!(cu!(b, cuLaunchHostFunc(NONE, Some(call_back), data)), 0);
        assert_eq!(cu!(b, cuStreamSynchronize(NONE)), 0);
        800
    }),
    (Rule::NullArgument, usual, |b| cu!(b, cuMemAlloc_v2(ptr::null_mut(), 16))),
    (Rule::Argument, usual, |b| cu!(b, cuMemAlloc_v2(ptr::from_mut(&mut 0), 0))),
    (Rule::Device, usual, |b| cu!(b, cuDeviceGet(ptr::from_mut(&mut 0), 1))),
    (Rule::NoContext, usual, |b| {
        assert_eq!(cu!(b, cuCtxSetCurrent(CUcontext::NULL)), 0);
        cu!(b, cuMemAlloc_v2(ptr::from_mut(&mut 0), 16))
    }),
    // Each thread has a current context of its own.
    (Rule::NoContext, usual, |b| thread::scope(|scope| scope.spawn(|| fill(b, 0, NONE)).join().unwrap())),
    (Rule::UnknownContext, usual, |b| cu!(b, cuCtxSetCurrent(CUcontext(64)))),
    (Rule::DestroyedContext, usual, |b| {
        let context = b.context();
        assert_eq!(cu!(b, cuCtxDestroy_v2(context)), 0);
        cu!(b, cuCtxSetCurrent(context))
    }),
    (Rule::CurrentElsewhere, usual, |b| {
        let context = b.context();
        thread::scope(|scope| scope.spawn(|| cu!(b, cuCtxSetCurrent(context))).join().unwrap());
        cu!(b, cuCtxDestroy_v2(context))
    }),
    (Rule::UnknownHandle, usual, |b| cu!(b, cuEventQuery(CUevent(b.stream(0).0)))),
    (Rule::DestroyedHandle, usual, |b| {
        let event = b.event(0);
        assert_eq!(cu!(b, cuEventDestroy_v2(event)), 0);
        cu!(b, cuEventDestroy_v2(event))
    }),
    (Rule::OtherContext, usual, |b| {
        let stream = b.stream(0);
        b.context();
        cu!(b, cuStreamQuery(stream))
    }),
    (Rule::OtherContext, usual, |b| {
        let event = b.event(0);
        b.context();
        cu!(b, cuEventRecord(event, NONE))
    }),
    (Rule::OtherContext, usual, |b| {
        let function = b.function();
        b.context();
        b.launch(function, 32, 0, 12, NONE)
    }),
    (Rule::DefaultStream, usual, |b| cu!(b, cuStreamDestroy_v2(CUstream(1)))),
    (Rule::NoAllocation, usual, |b| cu!(b, cuMemFree_v2(b.memory(4096) + 512))),
    (Rule::Freed, usual, |b| {
        let memory = b.memory(4096);
        assert_eq!(cu!(b, cuMemFree_v2(memory)), 0);
        cu!(b, cuMemFree_v2(memory))
    }),
    (Rule::Freed, usual, |b| {
        let memory = b.memory(4096);
        assert_eq!(cu!(b, cuMemFree_v2(memory)), 0);
        fill(b, memory, NONE)
    }),
    (Rule::OutOfRange, usual, |b| cu!(b, cuMemcpyHtoDAsync_v2(b.memory(4096) + 1, host(), 4096, NONE))),
    // The memory is mapped, but not accessible.
    (Rule::OutOfRange, usual, |b| fill(b, b.mapped(), NONE)),
    (Rule::Overlap, usual, |b| {
        let memory = b.memory(4096);
        cu!(b, cuMemcpyDtoDAsync_v2(memory + 16, memory, 32, NONE))
    }),
    (Rule::FillAlignment, usual, |b| cu!(b, cuMemsetD32Async(b.memory(64) + 2, 0, 1, NONE))),
    (Rule::FillAlignment, usual, |b| cu!(b, cuMemsetD16Async(b.memory(64) + 1, 0, 1, NONE))),
    (Rule::FillPitch, usual, |b| cu!(b, cuMemsetD2D8Async(b.memory(64), 8, 0, 16, 2, NONE))),
    (Rule::RegisteredTwice, usual, |b| {
        assert_eq!(cu!(b, cuMemHostRegister_v2(host(), 8192, 0)), 0);
        cu!(b, cuMemHostRegister_v2(host().wrapping_byte_add(4096), 8192, 0))
    }),
    (Rule::NotRegistered, usual, |b| {
        assert_eq!(cu!(b, cuMemHostRegister_v2(host(), 8192, 0)), 0);
        cu!(b, cuMemHostUnregister(host().wrapping_byte_add(4096)))
    }),
    (Rule::NoHostAllocation, usual, |b| {
        let pinned = b.pinned();
        assert_eq!(cu!(b, cuMemFreeHost(pinned)), 0);
        cu!(b, cuMemFreeHost(pinned))
    }),
    (Rule::NotMapped, usual, |b| cu!(b, cuMemHostGetDevicePointer_v2(ptr::from_mut(&mut 0), host(), 0))),
    (Rule::HostMemoryInUse, usual, |b| {
        b.hold();
        assert_eq!(cu!(b, cuMemHostRegister_v2(host(), 8192, 0)), 0);
        assert_eq!(cu!(b, cuMemcpyHtoDAsync_v2(b.memory(4096), host(), 4096, NONE)), 0);
        cu!(b, cuMemHostUnregister(host()))
    }),
    (
        Rule::RegisterUnsupported,
        || json!({ "host_register": false }),
        |b| cu!(b, cuMemHostRegister_v2(host(), 8192, 0)),
    ),
    (Rule::Granularity, usual, |b| cu!(b, cuMemCreate(ptr::from_mut(&mut 0), MIB, ptr::from_ref(&PROP), 0))),
    (Rule::Granularity, usual, |b| cu!(b, cuMemMap(b.reserved() + 4096, 2 * MIB, 0, b.physical(), 0))),
    (Rule::Reservation, usual, |b| cu!(b, cuMemAddressReserve(ptr::from_mut(&mut 0), 4095, 0, 0, 0))),
    (Rule::Reservation, usual, |b| cu!(b, cuMemAddressReserve(ptr::from_mut(&mut 0), 4096, 3, 0, 0))),
    (Rule::NotReserved, usual, |b| cu!(b, cuMemMap(8 << 20, 2 * MIB, 0, b.physical(), 0))),
    (Rule::MappedTwice, usual, |b| cu!(b, cuMemMap(b.mapped(), 2 * MIB, 0, b.physical(), 0))),
    (Rule::MapOffset, usual, |b| cu!(b, cuMemMap(b.reserved(), 2 * MIB, 2 * MIB, b.physical(), 0))),
    (Rule::BeyondPhysical, usual, |b| cu!(b, cuMemMap(b.reserved(), 4 * MIB, 0, b.physical(), 0))),
    (Rule::PartOfMapping, usual, |b| set_access(b, b.mapped(), MIB)),
    (Rule::PartOfMapping, usual, |b| cu!(b, cuMemUnmap(b.mapped(), 4 * MIB))),
    (Rule::StillMapped, usual, |b| cu!(b, cuMemAddressFree(b.mapped(), 8 * MIB))),
    (Rule::NoReservation, usual, |b| cu!(b, cuMemAddressFree(b.reserved(), 4 * MIB))),
    (Rule::NoPhysical, usual, |b| {
        let handle = b.physical();
        assert_eq!(cu!(b, cuMemRelease(handle)), 0);
        cu!(b, cuMemRelease(handle))
    }),
    (Rule::NoPhysical, usual, |b| cu!(b, cuMemMap(b.reserved(), 2 * MIB, 0, 7, 0))),
    (Rule::MappingInUse, usual, |b| {
        b.hold();
        let address = b.mapped();
        assert_eq!(set_access(b, address, 2 * MIB), 0);
        assert_eq!(fill(b, address, NONE), 0);
        cu!(b, cuMemUnmap(address, 2 * MIB))
    }),
    (Rule::NotRecorded, usual, |b| {
        cu!(b, cuEventElapsedTime(ptr::from_mut(&mut 0.0), b.event(0), b.event(0)))
    }),
    (Rule::NoTiming, usual, |b| {
        let event = b.event(2);
        assert_eq!(cu!(b, cuEventRecord(event, NONE)), 0);
        cu!(b, cuEventElapsedTime(ptr::from_mut(&mut 0.0), event, event))
    }),
    (Rule::WordAlignment, usual, |b| {
        cu!(b, cuStreamWriteValue64_v2(NONE, b.pinned().addr() as u64 + 4, 1, 0))
    }),
    (Rule::WordMemory, usual, |b| cu!(b, cuStreamWriteValue64_v2(NONE, host().addr() as u64, 1, 0))),
    (Rule::FileOnDisk, usual, |b| {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.set_len(4096).unwrap();
        let (rights, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the addresses, so nothing that exists is replaced.
        let mapped = unsafe { mmap(ptr::null_mut(), 4096, rights, shared, &file, 0) }.unwrap();
        cu!(b, cuMemHostRegister_v2(mapped, 4096, 0))
    }),
    // The device uses another address for registered memory than the program.
    (
        Rule::WordMemory,
        || json!({ "host_pointers": false }),
        |b| {
            assert_eq!(cu!(b, cuMemHostRegister_v2(host(), 8192, 0)), 0);
            cu!(b, cuStreamWaitValue32_v2(NONE, host().addr() as u64, 1, 0))
        },
    ),
    (
        Rule::WordUnsupported,
        || json!({ "memory_operations": false }),
        |b| cu!(b, cuStreamWriteValue64_v2(NONE, b.pinned().addr() as u64, 1, 0)),
    ),
    (Rule::BlasWorkspace, usual, |b| {
        let handle = b.blas();
        assert_eq!(b.blas_workspace(handle, b.memory(4096), 1024), 0);
        // cuBLAS has its own statuses, so the status in the record is compared.
        assert_eq!(b.blas_workspace(handle, b.memory(4096) + 128, 1024), BlasStatus::INVALID_VALUE.0);
        Rule::BlasWorkspace.status().0
    }),
    (Rule::OtherContext, usual, |b| {
        let handle = b.blas();
        b.context();
        assert_eq!(b.blas_workspace(handle, 0, 0), BlasStatus::NOT_INITIALIZED.0);
        Rule::OtherContext.status().0
    }),
    (Rule::CaptureLegacy, usual, |b| cu!(b, cuStreamBeginCapture_v2(NONE, RELAXED))),
    (Rule::CapturingAlready, usual, |b| {
        let stream = b.stream(NON_BLOCKING);
        begin(b, stream);
        cu!(b, cuStreamBeginCapture_v2(stream, RELAXED))
    }),
    (Rule::NotCapturing, usual, |b| end(b, b.stream(0))),
    (Rule::CaptureInvalidated, usual, |b| {
        let stream = b.stream(NON_BLOCKING);
        begin(b, stream);
        assert_eq!(cu!(b, cuStreamQuery(stream)), 900);
        fill(b, b.memory(64), stream)
    }),
    (Rule::CaptureUnsupported, usual, |b| {
        let (stream, event) = (b.stream(NON_BLOCKING), b.event(2));
        begin(b, stream);
        cu!(b, cuEventRecord(event, stream))
    }),
    (Rule::CaptureUnsupported, usual, |b| {
        let (stream, event) = (b.stream(NON_BLOCKING), b.event(2));
        begin(b, stream);
        cu!(b, cuStreamWaitEvent(stream, event, 0))
    }),
    (Rule::CaptureImplicit, usual, |b| {
        let memory = b.memory(64);
        begin(b, b.stream(0));
        fill(b, memory, NONE)
    }),
    (Rule::CaptureUnsupported, usual, |b| {
        let stream = b.stream(NON_BLOCKING);
        begin(b, stream);
        cu!(b, cuStreamSynchronize(stream))
    }),
    (Rule::NotCapturing, usual, |b| depend(b, b.stream(NON_BLOCKING), &mut [])),
    (Rule::Argument, usual, |b| {
        let stream = b.stream(NON_BLOCKING);
        begin(b, stream);
        cu!(b, cuStreamUpdateCaptureDependencies(stream, ptr::null_mut(), 0, 2))
    }),
    (Rule::CaptureInvalidated, usual, |b| {
        let stream = b.stream(NON_BLOCKING);
        begin(b, stream);
        assert_eq!(cu!(b, cuStreamQuery(stream)), 900);
        depend(b, stream, &mut [])
    }),
    (Rule::CaptureImplicit, usual, |b| {
        begin(b, b.stream(0));
        b.captured(NONE).0
    }),
    (Rule::ForeignNode, usual, |b| {
        let (_, node, _) = filled(b);
        let stream = b.stream(NON_BLOCKING);
        begin(b, stream);
        depend(b, stream, &mut [node])
    }),
    (Rule::GraphCaptured, usual, |b| {
        let stream = b.stream(NON_BLOCKING);
        begin(b, stream);
        cu!(b, cuGraphDestroy(b.captured(stream).1))
    }),
    // The graph of a node, or the instance, was destroyed.
    (Rule::DestroyedHandle, usual, |b| {
        let (graph, node, exec) = launched(b);
        assert_eq!(cu!(b, cuGraphDestroy(graph)), 0);
        set_kernel(b, exec, node, b.function(), CUcontext::NULL)
    }),
    (Rule::DestroyedHandle, usual, |b| {
        let (.., exec) = filled(b);
        assert_eq!(cu!(b, cuGraphExecDestroy(exec)), 0);
        cu!(b, cuGraphLaunch(exec, NONE))
    }),
    (Rule::DestroyedHandle, usual, |b| {
        let (graph, _, exec) = filled(b);
        assert_eq!(cu!(b, cuGraphExecDestroy(exec)), 0);
        cu!(b, cuGraphExecUpdate_v2(exec, graph, ptr::null_mut()))
    }),
    // An operand of the launch was freed.
    (Rule::Freed, usual, |b| {
        let memory = b.memory(64);
        let (.., exec) = graph_of(b, |stream| fill(b, memory, stream));
        assert_eq!(cu!(b, cuMemFree_v2(memory)), 0);
        cu!(b, cuGraphLaunch(exec, NONE))
    }),
    (Rule::DestroyedHandle, usual, |b| {
        let (module, mut function) = (b.module(), CUfunction::NULL);
        assert_eq!(cu!(b, cuModuleGetFunction(&raw mut function, module, c"k".as_ptr())), 0);
        let (.., exec) = graph_of(b, |stream| b.launch(function, 32, 0, 12, stream));
        assert_eq!(cu!(b, cuModuleUnload(module)), 0);
        cu!(b, cuGraphLaunch(exec, NONE))
    }),
    (Rule::ForeignNode, usual, |b| {
        let ((other, node, _), (graph, ..)) = (filled(b), filled(b));
        assert_ne!(other, graph);
        empty_node(b, graph, &[node])
    }),
    (Rule::NodeKind, usual, |b| {
        let (_, node, exec) = filled(b);
        set_kernel(b, exec, node, b.function(), CUcontext::NULL)
    }),
    (Rule::NodeOfOther, usual, |b| {
        let ((.., exec), (_, node, _)) = (launched(b), launched(b));
        set_kernel(b, exec, node, b.function(), CUcontext::NULL)
    }),
    (Rule::NodeContext, usual, |b| {
        let (_, node, exec) = launched(b);
        let context = b.context();
        set_kernel(b, exec, node, b.function(), context)
    }),
    (Rule::LaunchParameters, usual, |b| {
        let (function, none) = (b.function(), ptr::null_mut());
        cu!(b, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NONE, none, none))
    }),
    (Rule::LaunchShape, usual, |b| b.launch(b.function(), 1025, 0, 12, NONE)),
    (
        Rule::LaunchResources,
        || json!({ "function_threads": 256 }),
        |b| b.launch(b.function(), 512, 0, 12, NONE),
    ),
    (Rule::LaunchShared, usual, |b| b.launch(b.function(), 32, (48 << 10) + 4, 12, NONE)),
    (Rule::LaunchParameters, usual, |b| b.launch(b.function(), 32, 0, 8, NONE)),
    // A cluster of two blocks does not divide a grid of three blocks.
    (Rule::LaunchAttributes, usual, |b| {
        launch_with(b, CUlaunchAttribute { id: 4, value: [2 | 1 << 32, 1, 0, 0, 0, 0, 0, 0] })
    }),
    (Rule::Image, usual, |b| {
        let image = [b"\x7fELF".as_slice(), &[0; 60]].concat();
        b.load(image.as_ptr().cast()).0
    }),
    (Rule::FunctionAttribute, usual, |b| {
        let function: CUfunction = b.function();
        cu!(b, cuFuncSetAttribute(function, 8, (227 << 10) + 1))
    }),
];

/// Returns the cases that start with a context, including those of the linker and of cuBLASLt.
fn warm() -> impl Iterator<Item = &'static RuleCase> {
    CASES.iter().chain(edges::CASES).chain(links::CASES).chain(matmuls::OTHERS)
}

/// Checks that the newest call returned this status, was refused by the rule, and was the first refused call.
fn check(bench: &RecordingBench, rule: Rule, status: u32) {
    let refused: Vec<Value> = bench.lines().into_iter().filter(|line| !line["refused"].is_null()).collect();
    let names: Vec<&str> = refused.iter().filter_map(|line| line["refused"].as_str()).collect();
    // Only a refused call invalidates a capture.
    let before = if rule == Rule::CaptureInvalidated { &["CaptureUnsupported"][..] } else { &[] };
    assert_eq!(names, [before, &[rule.name()]].concat(), "{refused:?}");
    assert_eq!(status, rule.status().0, "{rule:?}");
    assert_eq!(refused.last().map(|line| &line["status"]), Some(&json!(status)), "{rule:?}");
}

#[test]
fn each_rule_is_held() {
    let cold = COLD.iter().map(|case| (case, RecordingBench::cold(&case.1())));
    let warm = warm().map(|case| (case, RecordingBench::with(&case.1())));
    for ((rule, _, calls), bench) in cold.chain(warm) {
        check(&bench, *rule, calls(&bench));
    }
    for (rule, call) in matmuls::CASES {
        let bench = RecordingBench::new();
        // cuBLASLt has its own statuses, so the record holds the status of the rule.
        assert_eq!(call(&mut TestProduct::new(&bench)), BlasStatus::INVALID_VALUE.0, "{rule:?}");
        check(&bench, *rule, rule.status().0);
    }
}

#[test]
fn no_rule_is_without_a_case() {
    let rules: Vec<Rule> = COLD.iter().chain(warm()).map(|(rule, ..)| *rule).collect();
    for rule in Rule::ALL {
        assert!(rules.contains(rule) || matmuls::CASES.iter().any(|(one, _)| one == rule), "{rule:?}");
    }
}
