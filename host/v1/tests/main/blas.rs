//! Tests of matrix products in each of their four forms.

use half::f16;
use vgpu_wire::v1::call::{CUBLAS_MAX, Op};
use vgpu_wire::v1::payload::{GemmBatched, GemmEx, GemmStrided, Sgemm};
use zerocopy::{FromZeros, IntoBytes};

use crate::driver::{Guest, guest, soft, wide};

/// A matrix of 2 by 2 elements, column by column.
const A: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
const B: [f32; 4] = [5.0, 6.0, 7.0, 8.0];
/// Expected results of 2 A B, and of 2 A B + C with C of ones.
const TWICE: [f32; 4] = [46.0, 68.0, 62.0, 92.0];
const PLUS: [f32; 4] = [47.0, 69.0, 63.0, 93.0];

struct Bench {
    guest: Guest,
    handle: u64,
    a: u64,
    b: u64,
    c: u64,
}

impl Bench {
    fn new() -> Self {
        let mut guest = guest(soft());
        let [0, handle] = guest.call(Op::CublasCreate, &[], &[]).ok()[..] else { panic!("a handle") };
        let (a, b, c) = (guest.alloc(64), guest.alloc(64), guest.alloc(64));
        Self { guest, handle, a, b, c }
    }

    fn fill(&mut self, a: &[u8], b: &[u8], c: &[u8]) {
        for (address, data) in [(self.a, a), (self.b, b), (self.c, c)] {
            self.guest.put(address, data).nothing();
        }
    }

    fn ones(&mut self) {
        self.fill(A.as_bytes(), B.as_bytes(), [1.0_f32; 4].as_bytes());
    }

    fn run(&mut self, op: Op, payload: &[u8]) -> u64 {
        self.guest.call(op, &[], payload).one()
    }

    fn c(&mut self) -> Vec<u8> {
        let c = self.c;
        self.guest.get(c, 16)
    }

    fn ex(&self) -> GemmEx {
        let mut gemm = GemmEx::new_zeroed();
        gemm.handle = self.handle.into();
        gemm.matrix = [self.a.into(), self.b.into(), self.c.into()];
        gemm.size = [2.into(); 3];
        gemm.leading = [2.into(); 3];
        gemm.compute = 68.into();
        gemm.algorithm = (-1).into();
        gemm.alpha = 2.0_f32.to_bits().into();
        gemm
    }
}

#[test]
fn products_of_each_form() {
    let mut bench = Bench::new();
    let mut single = Sgemm::new_zeroed();
    single.handle = bench.handle.into();
    single.matrix = [bench.a.into(), bench.b.into(), bench.c.into()];
    single.size = [2.into(); 3];
    single.leading = [2.into(); 3];
    single.alpha = 2.0_f32.to_bits().into();
    single.beta = 1.0_f32.to_bits().into();
    bench.ones();
    assert_eq!(bench.run(Op::CublasSgemm, single.as_bytes()), 0);
    assert_eq!(bench.c(), PLUS.as_bytes());

    bench.ones();
    let gemm = bench.ex();
    assert_eq!(bench.run(Op::CublasGemmEx, &[gemm.as_bytes(), &[0xee; 2000]].concat()), 0, "padded");
    assert_eq!(bench.c(), TWICE.as_bytes());

    let mut strided = GemmStrided::new_zeroed();
    strided.handle = bench.handle.into();
    strided.matrix = gemm.matrix;
    strided.size = gemm.size;
    strided.leading = gemm.leading;
    strided.compute = 68.into();
    strided.alpha = gemm.alpha;
    strided.batch = 2.into();
    strided.stride = [0.into(), 0.into(), 4.into()];
    bench.ones();
    assert_eq!(bench.run(Op::CublasGemmStridedBatchedEx, strided.as_bytes()), 0);
    let c = bench.c;
    assert_eq!(bench.guest.get(c, 32), [TWICE, TWICE].as_bytes());

    let mut batched = GemmBatched::new_zeroed();
    batched.handle = bench.handle.into();
    batched.size = gemm.size;
    batched.leading = gemm.leading;
    batched.compute = 68.into();
    batched.alpha = gemm.alpha;
    let mut product = |count: usize| {
        batched.batch = (count as i32).into();
        let addresses: Vec<u64> =
            [bench.a, bench.b, bench.c].iter().flat_map(|&at| vec![at; count]).collect();
        bench.ones();
        let payload = [batched.as_bytes(), addresses.as_bytes()].concat();
        assert_eq!(bench.run(Op::CublasGemmBatchedEx, &payload), 0);
        assert_eq!(bench.c(), TWICE.as_bytes(), "{count}");
        assert_eq!(bench.run(Op::CublasGemmBatchedEx, &payload[..payload.len() - 1]), 7, "cut off");
    };
    product(3);
    // The payload is longer than the inline buffer.
    product(40);
    batched.batch = (-1).into();
    assert_eq!(bench.run(Op::CublasGemmBatchedEx, batched.as_bytes()), 7);
    batched.batch = i32::MAX.into();
    assert_eq!(bench.run(Op::CublasGemmBatchedEx, batched.as_bytes()), 7);
}

#[test]
fn scalars_travel_as_f32_and_are_narrowed() {
    let mut bench = Bench::new();
    let half = |values: [f32; 4]| values.map(f16::from_f32);
    let bytes =
        |values: [f32; 4]| half(values).iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    bench.fill(&bytes(A), &bytes(B), &bytes([1.0; 4]));
    let mut gemm = bench.ex();
    gemm.types = [2.into(); 3];
    gemm.compute = 64.into();
    gemm.beta = 1.0_f32.to_bits().into();
    assert_eq!(bench.run(Op::CublasGemmEx, gemm.as_bytes()), 0);
    let c = bench.c;
    assert_eq!(bench.guest.get(c, 8), bytes(PLUS));
    // Version 1 cannot express these compute types (Q20).
    for compute in [70, 71, 72, 73] {
        gemm.compute = compute.into();
        assert_eq!(bench.run(Op::CublasGemmEx, gemm.as_bytes()), 15, "{compute}");
    }
    gemm.compute = 12345.into();
    assert_eq!(bench.run(Op::CublasGemmEx, gemm.as_bytes()), 15);
}

#[test]
fn products_are_checked() {
    let mut bench = Bench::new();
    bench.ones();
    let good = bench.ex();
    let mut status = |change: &dyn Fn(&mut GemmEx)| {
        let mut gemm = good;
        change(&mut gemm);
        bench.run(Op::CublasGemmEx, gemm.as_bytes())
    };
    assert_eq!(status(&|gemm| gemm.handle = 1.into()), 1);
    for index in 0..3 {
        assert_eq!(status(&|gemm| gemm.matrix[index] = 0.into()), 7);
        assert_eq!(status(&|gemm| gemm.matrix[index] = (good.matrix[index].get() + 64).into()), 7);
        assert_eq!(status(&|gemm| gemm.size[index] = (-1).into()), 7);
        assert_eq!(status(&|gemm| gemm.leading[index] = (-1).into()), 7);
    }
    assert_eq!(status(&|gemm| gemm.operation[0] = 9.into()), 7);
    assert_eq!(status(&|_| ()), 0);
    let stream = bench.guest.call(Op::StreamCreate, &[0], &[]).one();
    let handle = bench.handle;
    assert_eq!(bench.guest.call(Op::CublasGetStream, &wide(&[handle]), &[]).ok(), [0, 0]);
    assert_eq!(bench.guest.call(Op::CublasSetStream, &wide(&[handle, stream]), &[]).ok(), [0]);
    assert_eq!(bench.guest.call(Op::CublasGetStream, &wide(&[handle]), &[]).ok(), [0, stream]);
    assert_eq!(bench.run(Op::CublasGemmEx, good.as_bytes()), 0);
    // The matrix exceeds the allocation in which it starts. That is a fault, after which the owner has no
    // objects.
    let mut beyond = good;
    beyond.size[0] = 100.into();
    beyond.leading = [100.into(); 3];
    assert_eq!(bench.run(Op::CublasGemmEx, beyond.as_bytes()), 13);
    assert_eq!(bench.run(Op::CublasGemmEx, good.as_bytes()), 1, "the handle is gone");
    let address = bench.a;
    assert_eq!(bench.guest.put(address, &[1]).failed(), 1);
    bench.guest.alloc(4096);
}

#[test]
fn handles_are_created_until_there_are_too_many() {
    let mut guest = guest(soft());
    let handles: Vec<u64> = (0..CUBLAS_MAX).map(|_| guest.call(Op::CublasCreate, &[], &[]).ok()[1]).collect();
    assert_eq!(guest.call(Op::CublasCreate, &[], &[]).ok(), [3]);
    assert_eq!(guest.call(Op::CublasDestroy, &wide(&[handles[7]]), &[]).ok(), [0]);
    assert_eq!(guest.call(Op::CublasDestroy, &wide(&[handles[7]]), &[]).ok(), [1]);
    assert_eq!(guest.call(Op::CublasCreate, &[], &[]).ok().len(), 2);
}
