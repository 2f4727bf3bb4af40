//! What cuBLAS and cuBLASLt send by the private table, computed; and hosts that know none of it.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::driver::{CUgraph, CUgraphExec, CUstream};
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::vector::{VECTOR_AXPY, VECTOR_DOT, VectorOp};
use zerocopy::FromZeros;

use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases![
    "products":
    sums_reach_the_programs_memory,
    sums_of_many_threads_do_not_mix,
    epilogues_are_computed_captured_and_replayed,
];

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// x and y in device memory, `[1, 2, 3]` and `[4, 5, 6]`.
fn vectors() -> [u64; 2] {
    [&[1., 2., 3.], &[4., 5., 6.]].map(|numbers: &[f32; 3]| {
        let address = alloc(12);
        upload(address, &floats(numbers));
        address
    })
}

fn operation(operation: u32, vector: [u64; 2]) -> VectorOp {
    let mut body = VectorOp::new_zeroed();
    (body.operation, body.elements, body.step, body.vector) = (operation, 3, [1, 1], vector);
    body
}

fn vector(stream: CUstream, operation: &VectorOp, place: *mut c_void) -> Status {
    let stream = ptr::without_provenance_mut(stream.0);
    // SAFETY: live structures, and a place for a number or none.
    unsafe { (table().vector)(stream, operation, place) }.0
}

fn matmul(stream: CUstream, product: &MatmulLt) -> Status {
    let stream = ptr::without_provenance_mut(stream.0);
    // SAFETY: a live structure.
    unsafe { (table().matmul)(stream, product) }.0
}

/// `relu(A * B + bias)` of two by two.
fn with_epilogue(at: u64) -> MatmulLt {
    let mut body = MatmulLt::new_zeroed();
    (body.compute, body.epilogue, body.batch) = (68, 6, 1);
    (body.size, body.leading) = ([2; 3], [2; 4]);
    body.matrix = [at, at + 16, at + 48, at + 48];
    body.bias = at + 32;
    body.alpha[..4].copy_from_slice(&1f32.to_le_bytes());
    body
}

fn operands() -> u64 {
    let at = alloc(64);
    upload(at, &floats(&[1., 2., 3., 4., 1., 0., 0., -1., 0.5, -1., 0., 0.]));
    at
}

fn sums_reach_the_programs_memory() {
    begin();
    let vectors = vectors();
    let stream = get!(CUstream, cuStreamCreate(1));
    let mut sum = 0f32;
    let place = (&raw mut sum).cast();
    for stream in [CUstream(0), stream] {
        sum = 0.0;
        assert_eq!((vector(stream, &operation(VECTOR_DOT, vectors), place), sum), (0, 32.0));
    }
    // One message for the operation, one that brings the sum back.
    assert_eq!(messages(|| assert_eq!(vector(stream, &operation(VECTOR_DOT, vectors), place), 0)), 2);
    // In the order of the stream: it sees what was added before.
    let mut add = operation(VECTOR_AXPY, vectors);
    add.alpha[..4].copy_from_slice(&2f32.to_le_bytes());
    assert_eq!(messages(|| assert_eq!(vector(stream, &add, ptr::null_mut()), 0)), 1);
    assert_eq!((vector(stream, &operation(VECTOR_DOT, vectors), place), sum), (0, 60.0));
    assert_eq!(download(vectors[1], 12), floats(&[6., 9., 12.]));
    // To device memory nobody waits for it.
    let to = alloc(4);
    let there = VectorOp { result: to, ..operation(VECTOR_DOT, vectors) };
    assert_eq!(vector(stream, &there, ptr::null_mut()), 0);
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(to, 4), floats(&[60.]));
    // Wrong addresses are found when the work is done.
    let wrong = operation(VECTOR_DOT, [vectors[0], 4096]);
    assert_eq!(vector(stream, &wrong, place), 700);
}

fn sums_of_many_threads_do_not_mix() {
    let context = begin();
    let vectors = vectors();
    std::thread::scope(|scope| {
        for elements in [1, 2, 3, 0] {
            scope.spawn(move || {
                ok!(cuCtxSetCurrent(context));
                let stream = get!(CUstream, cuStreamCreate(1));
                let expected = [0., 4., 14., 32.][elements as usize];
                for _ in 0..200 {
                    let mut sum = -1f32;
                    let body = VectorOp { elements, ..operation(VECTOR_DOT, vectors) };
                    assert_eq!((vector(stream, &body, (&raw mut sum).cast()), sum), (0, expected));
                }
            });
        }
    });
    for address in vectors {
        ok!(cuMemFree_v2(address));
    }
}

fn epilogues_are_computed_captured_and_replayed() {
    begin();
    let at = operands();
    assert_eq!(messages(|| assert_eq!(matmul(CUstream(0), &with_epilogue(at)), 0)), 1);
    assert_eq!(download(at + 48, 16), floats(&[1.5, 1., 0., 0.]));
    let stream = get!(CUstream, cuStreamCreate(1));
    ok!(cuStreamBeginCapture_v2(stream, 0));
    let mut sum = 0f32;
    assert_eq!(messages(|| assert_eq!(matmul(stream, &with_epilogue(at)), 0)), 0);
    let body = operation(VECTOR_DOT, [at, at]);
    assert_eq!(vector(stream, &VectorOp { result: at + 60, ..body }, ptr::null_mut()), 0);
    let mut graph = CUgraph::default();
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    let ready = get!(CUgraphExec, cuGraphInstantiateWithFlags(graph, 0));
    upload(at, &floats(&[2., 2., 3., 4.]));
    ok!(cuGraphLaunch(ready, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(at + 48, 16), floats(&[2.5, 1., 0., 17.]));
    // What is waited for cannot be captured.
    ok!(cuStreamBeginCapture_v2(stream, 0));
    assert_eq!(vector(stream, &body, (&raw mut sum).cast()), 900);
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), 901);
}
