//! Tests of products of cuBLASLt: their descriptors, and the algorithms that are used.

use serde_json::{Value, json};
use vgpu_host_testing::commands::{allocate, stream, synchronize};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::facts::exec;

use crate::gpu::RecordedGpu;

/// All epilogues of the contract.
const EPILOGUES: [u32; 16] = [1, 2, 4, 6, 32, 36, 130, 134, 136, 152, 160, 164, 192, 208, 256, 512];
/// Epilogue that requires B to be transposed.
const SUMS_OF_B: u32 = 512;
/// Epilogue with a bias and ReLU's mask.
const RELU_AUX_BIAS: u32 = 134;
const KIB: u64 = 1 << 10;

/// Creates a message for a product of 16 by 16 matrices of single precision in memory of 64 KiB, with a batch
/// of two.
fn product(stream: u32, memory: u64, epilogue: u32) -> MatmulLt {
    let one = u128::from(1_f32.to_bits()).to_le_bytes();
    MatmulLt {
        stream,
        flags: 0,
        operation: [0, u32::from(epilogue == SUMS_OF_B)],
        types: [0; 4],
        compute: 68,
        scale: 0,
        epilogue,
        bias_type: 0,
        aux_type: 0,
        batch: 2,
        size: [16; 3],
        leading: [16; 4],
        stride: [256, 0, 256, 256],
        matrix: [memory, memory + 4 * KIB, memory + 8 * KIB, memory + 12 * KIB],
        alpha: one,
        beta: one,
        bias: memory + 16 * KIB,
        bias_stride: 16,
        aux: memory + 20 * KIB,
        aux_leading: 128,
        aux_stride: 128 * 16,
        workspace: 0,
        workspace_bytes: 0,
        reserved: [0; 2],
    }
}

fn send(guest: &mut Guest, body: &MatmulLt) -> u64 {
    guest.send(body, &[])
}

/// The algorithm is requested with the limits of this product, and the workspace is the stream's. The
/// descriptors are destroyed when the call returns, although the work is not complete.
#[test]
fn a_product_with_an_epilogue() {
    let gpu = RecordedGpu::new(&json!({}));
    assert_ne!(gpu.abilities & exec::EPILOGUES, 0);
    let mut guest = gpu.guest();
    let memory = allocate(&mut guest, 64 * KIB);
    stream(&mut guest, 1, 1);
    gpu.hold();
    send(&mut guest, &product(1, memory, RELU_AUX_BIAS));
    guest.echo();
    let made = gpu.calls().iter().filter(|line| line["out"]["made"].is_string()).count();
    let destroyed =
        ["cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy", "cublasLtMatmulPreferenceDestroy"];
    assert_eq!((made, destroyed.map(|call| gpu.count(call))), (6, [1, 4, 1]));
    gpu.compare("matmul_lt.jsonl");
    gpu.release();
    synchronize(&mut guest);
    assert_eq!(guest.late(), None);
}

/// No product is refused: every epilogue, with scalars in host and device memory, a C of one column or none,
/// and matrices at addresses of every alignment.
#[test]
fn no_product_is_refused() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 64 * KIB);
    let scalars = memory + 60 * KIB;
    for epilogue in EPILOGUES {
        let body = product(0, memory, epilogue);
        let place = u128::from(scalars).to_le_bytes();
        let [a, b, c, d] = body.matrix;
        let [stride_a, stride_b, _, stride_d] = body.stride;
        for body in [
            body,
            MatmulLt { flags: GEMM_DEVICE_SCALARS, alpha: place, beta: place, ..body },
            MatmulLt { leading: [16, 16, 0, 16], ..body },
            MatmulLt { beta: [0; 16], matrix: [a, b, 0, d], ..body },
            // A C that is not read may have any shape. D is passed in its place.
            MatmulLt {
                beta: [0; 16],
                matrix: [a, b, 0, d],
                leading: [16, 16, 24, 16],
                stride: [stride_a, stride_b, 0, stride_d],
                ..body
            },
            MatmulLt { matrix: [a, b, d, d], stride: [stride_a, stride_b, stride_d, stride_d], ..body },
            MatmulLt { matrix: [a + 4, b + 8, c + 16, d + 64], bias: body.bias + 4, ..body },
        ] {
            send(&mut guest, &body);
        }
    }
    synchronize(&mut guest);
    assert_eq!(guest.late(), None);
    assert_eq!(gpu.count("cublasLtMatmul"), 7 * EPILOGUES.len());
    gpu.check();
}

/// A stream's workspace lives until its work is complete, and the handle until the context is destroyed.
#[test]
fn a_workspace_outlives_the_products_that_use_it() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 64 * KIB);
    stream(&mut guest, 1, 1);
    gpu.hold();
    send(&mut guest, &product(1, memory, 1));
    guest.send(&vgpu_wire::body::stream::StreamDestroy { stream: 1, reserved: 0 }, &[]);
    guest.echo();
    assert_eq!(gpu.count("cuMemUnmap"), 0);
    gpu.release();
    until("the workspace is free", || gpu.count("cuMemUnmap") > 0);
    gpu.check_all(&guest);
}

/// A workspace of the guest that cuBLASLt refuses is a late error, and so is a failure of any call.
/// Everything that was created for the product is destroyed.
#[test]
fn what_the_library_refuses_is_told_and_leaves_nothing() {
    let calls = [
        "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescSetAttribute",
        "cublasLtMatrixLayoutCreate",
        "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmul",
    ];
    for call in calls {
        let (gpu, mut guest) =
            RecordedGpu::with_guest(&json!({ "failures": [{ "call": call, "nth": 1, "status": 2 }] }));
        let memory = allocate(&mut guest, 64 * KIB);
        let number = send(&mut guest, &product(0, memory, RELU_AUX_BIAS));
        guest.echo();
        assert_eq!(guest.late(), Some((2, 0, number)), "{call}");
        send(&mut guest, &product(0, memory, RELU_AUX_BIAS));
        synchronize(&mut guest);
        let ends = |end: &str| {
            let of_lt = |line: &&Value| {
                let name = line["call"].as_str().unwrap_or_default();
                name.starts_with("cublasLt") && name.ends_with(end) && line["status"] == 0
            };
            gpu.calls().iter().filter(of_lt).count()
        };
        assert_eq!(ends("Create"), ends("Destroy"), "{call}");
        gpu.check();
    }
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 64 * KIB);
    let (workspace, workspace_bytes) = (memory + 32 * KIB + 16, 16 * KIB);
    let number = send(&mut guest, &MatmulLt { workspace, workspace_bytes, ..product(0, memory, 1) });
    guest.echo();
    assert_eq!(guest.late(), Some((1, 0, number)));
    let refused: Vec<Value> = gpu.recording.refused().expect("a record");
    assert_eq!(refused.iter().map(|line| &line["refused"]).collect::<Vec<_>>(), ["BlasWorkspace"]);
}
