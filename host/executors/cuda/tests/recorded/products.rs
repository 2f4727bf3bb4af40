//! Tests of products: the calls of cuBLAS, and their order.

use serde_json::json;
use vgpu_host_testing::commands::{self, allocate, stream, synchronize};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::gemm::Gemm;
use vgpu_wire::body::stream::StreamDestroy;

use crate::gpu::RecordedGpu;

/// Creates a message for a product of 16 by 16 matrices of single precision that are adjacent in memory.
pub fn product(stream: u32, memory: u64) -> Gemm {
    Gemm { stream, math: 3, ..commands::product(16, [memory, memory + 1024, memory + 2048]) }
}

fn send(guest: &mut Guest, body: Gemm) -> u64 {
    guest.send(&body, &[])
}

/// The handle is created once, in the session's context. The stream is set before the workspace, because
/// setting it resets the workspace. The workspace of a stream is freed when the stream's work is complete.
#[test]
fn products_of_two_streams() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 4096);
    stream(&mut guest, 1, 1);
    assert_eq!(gpu.count("cublasCreate_v2"), 0);
    gpu.hold();
    send(&mut guest, product(1, memory));
    send(&mut guest, Gemm { batch: 2, stride: [0, 0, 16], math: 0, ..product(0, memory) });
    send(&mut guest, product(1, memory));
    guest.send(&StreamDestroy { stream: 1, reserved: 0 }, &[]);
    guest.echo();
    assert_eq!((gpu.count("cublasCreate_v2"), gpu.count("cuMemUnmap")), (1, 0));
    gpu.release();
    until("the workspace is free", || gpu.count("cuMemUnmap") > 0);
    assert_eq!(guest.late(), None);
    gpu.compare("products.jsonl");
}

/// The handle is destroyed before the context at the end of the session.
#[test]
fn a_handle_goes_before_its_context() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 4096);
    send(&mut guest, product(0, memory));
    synchronize(&mut guest);
    guest.detach();
    let calls = gpu.calls();
    let at = |call: &str| calls.iter().position(|line| line["call"] == call).expect(call);
    assert!(at("cublasDestroy_v2") < at("cuCtxDestroy_v2"));
    let refused: Vec<_> = calls.iter().filter(|line| !line["refused"].is_null()).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// A guest's workspace replaces that of the executor. A workspace that cuBLAS refuses is a late error.
#[test]
fn a_guest_has_a_workspace_of_its_own() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 64 << 10);
    let own = Gemm { workspace: memory + 4096, workspace_bytes: 32 << 10, ..product(0, memory) };
    send(&mut guest, own);
    guest.echo();
    gpu.check_all(&guest);
    let number = send(&mut guest, Gemm { workspace: memory + 4096 + 16, ..own });
    guest.echo();
    assert_eq!(guest.late(), Some((1, 0, number)));
    let set = gpu.calls().into_iter().rfind(|line| line["call"] == "cublasSetWorkspace_v2").expect("a call");
    assert_eq!(set["refused"], "BlasWorkspace");
}

/// If the GPU has no memory left for cuBLAS, the product fails, and a later product tries again.
#[test]
fn a_handle_that_cannot_be_made_is_tried_again() {
    let (gpu, mut guest) = RecordedGpu::with_guest(
        &json!({ "failures": [{ "call": "cublasCreate_v2", "nth": 1, "status": 2 }] }),
    );
    let memory = allocate(&mut guest, 4096);
    let number = send(&mut guest, product(0, memory));
    guest.echo();
    assert_eq!(guest.late(), Some((2, 0, number)));
    send(&mut guest, product(0, memory));
    synchronize(&mut guest);
    assert_eq!((gpu.count("cublasCreate_v2"), gpu.count("cublasGemmEx_64")), (2, 1));
}
