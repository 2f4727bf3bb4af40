//! Tests of the device memory that is charged beside allocations: what a context costs, and what modules
//! take.

use serde_json::json;
use vgpu_device::{Executor as _, GpuConfig};
use vgpu_executor_cuda::{ContextProbe, Cuda, CudaOptions, FoundBlas};
use vgpu_host_testing::bench::{Bench, config};
use vgpu_host_testing::commands::{
    LAUNCH, allocate, function, launch, load, params, send_module, synchronize,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_image::cubin::build::cubin_with;
use vgpu_recording_cuda::{CONTEXT_BYTES, HANDLE_BYTES, Recording};
use vgpu_wire::Span;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::module::{IMAGE_CUBIN, ModuleData, ModuleLoad, ModuleOpen, ModuleUnload};
use vgpu_wire::facts::exec;

use crate::gpu::RecordedGpu;
use crate::products::product;

const OUT_OF_MEMORY: u32 = 2;
const INVALID_IMAGE: u32 = 200;
const GIB: u64 = 1 << 30;
/// Unit in which the GPU's memory is charged, in bytes.
const GRANULE: u64 = 2 << 20;

/// Returns the options of an executor whose libraries record.
fn options(recording: &Recording) -> CudaOptions {
    CudaOptions {
        libcuda: Some(recording.library()),
        libcublas: Some(recording.cublas()),
        ..CudaOptions::new(GpuConfig::new("any").expect("a range of addresses").addresses)
    }
}

/// Loads a module whose variables take `bytes`, and returns the status with its text.
fn load_variables(guest: &mut Guest, module: u32, bytes: &str) -> (u32, String) {
    let text = format!(".version 8.0\n.target sm_61\n.address_size 64\n.global .align 8 .b8 v[{bytes}];\n");
    assert_eq!(send_module(guest, module, &text), Ok(false));
    let (status, why) = guest.call(ModuleLoad { reply: 0, module }, &[]);
    (status, String::from_utf8_lossy(&why).into_owned())
}

#[test]
fn what_a_context_costs_includes_a_handle_of_cublas() {
    let recording = Recording::new(&json!({})).expect("a recording libcuda");
    let options = options(&recording);
    let probe = ContextProbe::create(&options).expect("a context");
    let free = || probe.free_bytes().expect("an answer").expect("a number");
    let before = free();
    let mut measured = ContextProbe::create(&options).expect("a context");
    assert_eq!(before - free(), CONTEXT_BYTES);
    measured.add_products(&options).expect("a handle");
    assert_eq!(before - free(), CONTEXT_BYTES + HANDLE_BYTES);
    drop(measured);
    assert_eq!(free(), before);
    assert_eq!(recording.refused().expect("a record"), [] as [serde_json::Value; 0]);
}

/// Without room for the handle there is a context, and whoever measures it is told.
#[test]
fn a_context_without_room_for_a_handle_says_so() {
    let failure = json!({ "call": "cublasCreate_v2", "nth": 1, "status": OUT_OF_MEMORY });
    let recording = Recording::new(&json!({ "failures": [failure] })).expect("a recording libcuda");
    let options = options(&recording);
    let mut probe = ContextProbe::create(&options).expect("a context");
    let error = probe.add_products(&options).expect_err("no room for a handle");
    assert_eq!(error.to_string(), "cublasCreate_v2 returned CUBLAS_STATUS_ALLOC_FAILED (3)");
    assert!(probe.free_bytes().expect("an answer").is_some());
}

#[test]
fn variables_of_modules_are_charged_before_they_are_loaded() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    allocate(&mut guest, GRANULE);
    let held = gpu.bench.allocated();
    let total = gpu.bench.bus.status().devices[0].total;
    assert_eq!(load_variables(&mut guest, 1, &GIB.to_string()).0, 0);
    // The image is charged, too.
    assert_eq!(gpu.bench.allocated(), held + GIB + GRANULE);
    let loads = gpu.count("cuModuleLoadDataEx");
    for bytes in [total - GIB, u64::MAX] {
        let (status, why) = load_variables(&mut guest, 2, &bytes.to_string());
        assert_eq!(status, OUT_OF_MEMORY, "{why}");
        assert!(why.contains("variable"), "{why}");
    }
    // A size that nobody can tell before the driver has compiled the text is refused, too.
    let (status, why) = load_variables(&mut guest, 2, "1 << 30");
    assert_eq!((status, why.as_str()), (OUT_OF_MEMORY, "the size of variable v cannot be told"));
    assert_eq!((gpu.count("cuModuleLoadDataEx"), gpu.bench.allocated()), (loads, held + GIB + GRANULE));
    guest.send(&ModuleUnload { module: 1, reserved: 0 }, &[]);
    until("the module is unloaded", || gpu.bench.allocated() == held);
    guest.detach();
    assert_eq!(gpu.bench.allocated(), 0);
    gpu.check();
}

/// The driver might find variables in a cubin whose names of sections cannot be read.
#[test]
fn a_cubin_that_does_not_tell_its_variables_is_refused() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    allocate(&mut guest, GRANULE);
    let held = gpu.bench.allocated();
    let image = cubin_with(&[], &[("v", 0)], 90);
    let mut unreadable = image.clone();
    // The name of the section of variables, which follows an empty one and that of shared memory.
    let sections = u64::from_le_bytes(image[40..48].try_into().expect("an offset")) as usize;
    unreadable[sections + 2 * 64..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut load = |module, image: &[u8]| {
        let bytes = image.len() as u64;
        let open = ModuleOpen { reply: 0, module, image: IMAGE_CUBIN, reserved: 0, bytes, digest: [0; 32] };
        assert_eq!(guest.call(open, &[]).0, 0);
        guest.send(&ModuleData { module, reserved: 0, offset: 0, data: Span::inline(bytes) }, image);
        guest.call(ModuleLoad { reply: 0, module }, &[]).0
    };
    assert_eq!(load(1, &unreadable), INVALID_IMAGE);
    assert_eq!((gpu.count("cuModuleLoadDataEx"), gpu.bench.allocated()), (0, held));
    assert_eq!(load(2, &image), 0);
    assert_eq!(gpu.bench.allocated(), held + 2 * GRANULE, "the image and the variable");
    gpu.check();
}

/// The driver takes local memory for all threads that can run at a time, and keeps it.
#[test]
fn local_memory_of_kernels_is_charged_when_they_are_launched() {
    // 114 multiprocessors of 2048 threads, of which each has 1024 bytes without being charged.
    const THREADS: u64 = 114 * 2048;
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "local_bytes": 2048 }));
    let memory = allocate(&mut guest, 4096);
    load(&mut guest, 1);
    function(&mut guest, 1, "scale");
    let held = gpu.bench.allocated();
    for _ in 0..2 {
        launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(memory, &[1, 2]));
        synchronize(&mut guest);
        assert_eq!(gpu.bench.allocated(), held + THREADS * 1024);
    }
    guest.detach();
    assert_eq!(gpu.bench.allocated(), 0);
    gpu.check();

    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "local_bytes": 1 << 20 }));
    let memory = allocate(&mut guest, 4096);
    load(&mut guest, 1);
    function(&mut guest, 1, "scale");
    let held = gpu.bench.allocated();
    let number = launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(memory, &[1, 2]));
    guest.echo();
    assert_eq!((guest.late(), gpu.bench.allocated()), (Some((OUT_OF_MEMORY, 0, number)), held));
    assert_eq!(gpu.count("cuLaunchKernel"), 0);
}

/// An executor that is given what another one found searches no directory and opens no library to find
/// cuBLAS.
#[test]
fn cublas_is_searched_once() {
    let recording = Recording::new(&json!({})).expect("a recording libcuda");
    let found = Cuda::new(&options(&recording)).expect("an executor").found_blas();
    let text = serde_json::to_string(&found).expect("text");
    assert!(text.contains(recording.cublas().to_str().expect("a path")), "{text}");
    let found: FoundBlas = serde_json::from_str(&text).expect("what was found");
    let nowhere = CudaOptions {
        libcublas: Some("/does/not/exist/libcublas.so.13".into()),
        root: "/does/not/exist".into(),
        found_blas: Some(found),
        ..options(&recording)
    };
    let cuda = Cuda::new(&nowhere).expect("an executor");
    assert_eq!(cuda.facts().abilities & exec::EPILOGUES, exec::EPILOGUES);
    let bench = Bench::with(config(cuda));
    let mut guest = bench.guest(0);
    let memory = allocate(&mut guest, 4096);
    guest.send(&product(0, memory), &[]);
    guest.echo();
    assert_eq!(guest.late(), None);
    let none = CudaOptions { found_blas: Some(FoundBlas::default()), ..nowhere };
    assert_eq!(Cuda::new(&none).expect("an executor").facts().abilities & exec::VECTORS, 0);
}
