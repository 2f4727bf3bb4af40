//! Products, solves and operations on vectors: what the executor has cuBLAS compute is what the soft executor
//! computes itself.

use vgpu_host_testing::bench::Bench;
use vgpu_host_testing::commands::{allocate, copy_in, read, stream, synchronize};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm, TriangularSolve};
use vgpu_wire::body::memory::MemFree;
use vgpu_wire::body::stream::{EventCreate, EventRecord, Join, StreamDestroy, StreamWait};
use vgpu_wire::body::vector::{
    VECTOR_ASUM, VECTOR_AXPY, VECTOR_DOT, VECTOR_DOT_CONJUGATE, VECTOR_NORM, VectorOp,
};
use vgpu_wire::{Mark, Payload};

use crate::place::{adversarial, looped};

/// A `cudaDataType` with the bytes of an element and the bits of its `index`th number: small, never NaN.
#[derive(Clone, Copy)]
pub struct Kind {
    pub number: u32,
    pub bytes: usize,
    part: fn(u32) -> u64,
    parts: usize,
}

const fn kind(number: u32, bytes: usize, part: fn(u32) -> u64) -> Kind {
    Kind { number, bytes, part, parts: 1 }
}

fn small(bits: u32) -> f64 {
    f64::from((bits % 65) as i32 - 32) / 16.0
}

pub const F32: Kind = kind(0, 4, |bits| u64::from((small(bits) as f32).to_bits()));
pub const F64: Kind = kind(1, 8, |bits| small(bits).to_bits());
// The magnitude is from 1 to 2, and the sign is either.
pub const F16: Kind = kind(2, 2, |bits| u64::from(0x3c00 | bits & 0x83ff));
const BF16: Kind = kind(14, 2, |bits| u64::from(0x3f80 | bits & 0x807f));
const I8: Kind = kind(3, 1, |bits| u64::from(bits & 0xff));
const I32: Kind = kind(10, 4, |bits| u64::from(bits % 1000));
const C32: Kind = Kind { number: 4, bytes: 8, parts: 2, ..F32 };
const C64: Kind = Kind { number: 5, bytes: 16, parts: 2, ..F64 };

impl Kind {
    pub fn numbers(self, count: usize, seed: u32) -> Vec<u8> {
        let mut state = seed;
        let mut bytes = Vec::new();
        for _ in 0..count * self.parts {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (self.part)(state >> 13).to_le_bytes();
            bytes.extend_from_slice(&number[..self.bytes / self.parts]);
        }
        bytes
    }

    /// Returns a scalar of this type in the first bytes. The others are zeros.
    pub fn scalar(self, value: f64) -> [u8; 16] {
        let mut scalar = [0; 16];
        match self.number {
            0 | 4 => scalar[..4].copy_from_slice(&(value as f32).to_le_bytes()),
            1 | 5 => scalar[..8].copy_from_slice(&value.to_le_bytes()),
            // The value is a power of two, whose fraction is 0.
            2 => scalar[..2].copy_from_slice(&(((value.log2() as i32 + 15) as u16) << 10).to_le_bytes()),
            _ => scalar[..4].copy_from_slice(&(value as i32).to_le_bytes()),
        }
        scalar
    }
}

/// Size in bytes of the pieces in which data is sent. The tail of a message can be longer.
const CHUNK: usize = 32 << 10;

/// Stores bytes in device memory.
fn store(guest: &mut Guest, address: u64, bytes: &[u8]) {
    for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
        copy_in(guest, 0, address + (index * CHUNK) as u64, chunk);
    }
    synchronize(guest);
}

/// Allocates device memory, stores these bytes in it, and returns its address.
pub fn put(guest: &mut Guest, bytes: &[u8]) -> u64 {
    let address = allocate(guest, bytes.len() as u64);
    store(guest, address, bytes);
    address
}

const M: usize = 21;
const N: usize = 17;
const K: usize = 33;
const LEAD: usize = 40;

/// A product whose matrices have `LEAD` by 40 elements each. A batch has 3 at most, whose matrices follow
/// each other.
struct Case {
    name: &'static str,
    types: [Kind; 3],
    compute: u32,
    scale: Kind,
    change: fn(&mut Gemm),
}

const PLAIN: Case = Case { name: "f32", types: [F32; 3], compute: 68, scale: F32, change: |_| () };

fn cases() -> Vec<Case> {
    vec![
        PLAIN,
        Case { name: "f64", types: [F64; 3], compute: 70, scale: F64, ..PLAIN },
        Case { name: "f16", types: [F16; 3], compute: 68, ..PLAIN },
        Case { name: "f16 in f16", types: [F16; 3], compute: 64, scale: F16, ..PLAIN },
        Case { name: "f16 to f32", types: [F16, F16, F32], compute: 77, ..PLAIN },
        Case { name: "bf16", types: [BF16; 3], ..PLAIN },
        Case { name: "bf16 to f32", types: [BF16, BF16, F32], ..PLAIN },
        Case { name: "i8 to i32", types: [I8, I8, I32], compute: 72, scale: I32, ..PLAIN },
        Case { name: "i8 to f32", types: [I8, I8, F32], ..PLAIN },
        Case { name: "c32", types: [C32; 3], scale: C32, change: |gemm| gemm.operation = [2, 1], ..PLAIN },
        Case { name: "c64", types: [C64; 3], compute: 70, scale: C64, ..PLAIN },
        Case { name: "transposed", change: |gemm| gemm.operation = [1, 1], ..PLAIN },
        Case {
            name: "math mode and algorithm",
            change: |gemm| (gemm.math, gemm.algorithm) = (3, 99),
            ..PLAIN
        },
        Case { name: "strided", change: |gemm| (gemm.batch, gemm.stride) = (3, [1600, 0, 1600]), ..PLAIN },
        Case {
            name: "strided backwards",
            change: |gemm| {
                (gemm.batch, gemm.stride) = (3, [-1600, 1600, 1600]);
                gemm.matrix[0] += 2 * 1600 * 4;
            },
            ..PLAIN
        },
        Case { name: "no terms", change: |gemm| (gemm.size[2], gemm.matrix[0]) = (0, 0), ..PLAIN },
    ]
}

fn product(case: &Case, matrix: [u64; 3]) -> Gemm {
    let mut gemm = Gemm {
        stream: 1,
        flags: 0,
        operation: [0, 0],
        types: case.types.map(|kind| kind.number),
        compute: case.compute,
        scale: case.scale.number,
        algorithm: -1,
        math: 0,
        batch: 1,
        size: [M as u64, N as u64, K as u64],
        leading: [LEAD as u64; 3],
        stride: [0; 3],
        matrix,
        alpha: case.scale.scalar(2.0),
        beta: case.scale.scalar(4.0),
        workspace: 0,
        workspace_bytes: 0,
    };
    (case.change)(&mut gemm);
    gemm
}

/// Sends a message and waits for it. Returns the `bytes` bytes of C, which must differ from the `old` ones.
fn result<P: Payload>(guest: &mut Guest, body: &P, c: u64, bytes: usize, old: &[u8]) -> Vec<u8> {
    guest.send(body, &[]);
    synchronize(guest);
    let new = read(guest, c, bytes as u64);
    assert!(new != old, "nothing was computed");
    new
}

/// Sends all products, solves and operations on vectors. Returns the name of each with its result.
fn all(guest: &mut Guest) -> Vec<(String, Vec<u8>)> {
    stream(guest, 1, 1);
    let mut results = Vec::new();
    for (seed, case) in (1..).zip(cases()) {
        let data = [0, 1, 2].map(|at| case.types[at].numbers(3 * 1600, seed * 3 + at as u32));
        let [a, b, c] = [&data[0], &data[1], &data[2]].map(|data| put(guest, data));
        let body = product(&case, [a, b, c]);
        results.push((case.name.to_owned(), result(guest, &body, c, data[2].len(), &data[2])));
        // The second message has scalars and arrays of addresses on the device, and a workspace.
        store(guest, c, &data[2]);
        let scalars = put(guest, &[body.alpha, body.beta].concat());
        let addresses = |index: usize, count: u64| {
            let step = body.stride[index] * case.types[index].bytes as i64;
            (0..count)
                .flat_map(move |at| body.matrix[index].wrapping_add_signed(step * at as i64).to_le_bytes())
        };
        let arrays =
            [0, 1, 2].map(|index| put(guest, &addresses(index, body.batch.into()).collect::<Vec<u8>>()));
        let scalar = |address: u64| {
            let mut place = [0; 16];
            place[..8].copy_from_slice(&address.to_le_bytes());
            place
        };
        let workspace = allocate(guest, 1 << 16);
        let on_device = Gemm {
            flags: GEMM_POINTERS | GEMM_DEVICE_SCALARS,
            stride: [0; 3],
            matrix: arrays,
            alpha: scalar(scalars),
            beta: scalar(scalars + 16),
            workspace,
            workspace_bytes: 1 << 16,
            ..body
        };
        let name = format!("{} by arrays", case.name);
        results.push((name, result(guest, &on_device, c, data[2].len(), &data[2])));
        for address in [a, b, c, scalars, arrays[0], arrays[1], arrays[2], workspace] {
            guest.send(&MemFree { address }, &[]);
        }
    }
    results.append(&mut solves(guest));
    results.append(&mut vectors(guest));
    results
}

/// Sends triangular solves. Returns the name of each with its result.
fn solves(guest: &mut Guest) -> Vec<(String, Vec<u8>)> {
    let mut results = Vec::new();
    for (kind, side, batch) in [(F32, 0, 1), (F64, 1, 3), (C32, 0, 3), (C64, 1, 1)] {
        let (a, b) = (kind.numbers(3 * 1600, 77), kind.numbers(3 * 1600, 78));
        let [at, bt] = [&a, &b].map(|data| put(guest, data));
        let addresses = |first: u64| {
            (0..batch)
                .flat_map(move |at| (first + at * 1600 * kind.bytes as u64).to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let arrays = [at, bt].map(|first| put(guest, &addresses(first)));
        let pointers = batch > 1;
        let solve = TriangularSolve {
            stream: 1,
            flags: if pointers { GEMM_POINTERS } else { 0 },
            side,
            fill: 1 - side,
            operation: side,
            diagonal: 1,
            element: kind.number,
            batch: batch as u32,
            size: [9, 7],
            leading: [LEAD as u64; 2],
            matrix: if pointers { arrays } else { [at, bt] },
            alpha: kind.scalar(2.0),
            reserved: 0,
        };
        results.push((format!("solve of {}", kind.number), result(guest, &solve, bt, b.len(), &b)));
    }
    results
}

/// Sends operations on vectors. Returns the name of each with its result.
fn vectors(guest: &mut Guest) -> Vec<(String, Vec<u8>)> {
    let mut results = Vec::new();
    for (kind, real, compute) in [
        (F32, F32, F32),
        (F64, F64, F64),
        (F16, F16, F32),
        (BF16, BF16, F32),
        (C32, F32, C32),
        (C64, F64, C64),
    ] {
        let data = [1, 2].map(|seed| kind.numbers(400, seed));
        let [x, y] = data.each_ref().map(|data| put(guest, data));
        let sum = put(guest, &[0xee; 16]);
        // Alpha is of single precision if elements have 2 bytes.
        let factor_kind = if kind.bytes == 2 { F32 } else { kind };
        let alpha = put(guest, &factor_kind.scalar(2.0));
        let element = kind.bytes as u64;
        for operation in [VECTOR_DOT, VECTOR_DOT_CONJUGATE, VECTOR_NORM, VECTOR_ASUM, VECTOR_AXPY] {
            let single = matches!(operation, VECTOR_NORM | VECTOR_ASUM);
            if operation == VECTOR_ASUM && matches!(kind.number, 2 | 14) {
                continue;
            }
            // Vectors are read forwards, then the second one backwards from its end. Then there are no
            // elements.
            for (elements, step, first) in
                [(99, [1, 1], 0), (99, [3, if single { 1 } else { -2 }], 98 * 2), (0, [1, 1], 0)]
            {
                for on_device in [false, true] {
                    let adds = operation == VECTOR_AXPY;
                    let mut factor = factor_kind.scalar(2.0);
                    if on_device && adds {
                        factor = [0; 16];
                        factor[..8].copy_from_slice(&alpha.to_le_bytes());
                    }
                    let body = VectorOp {
                        stream: 1,
                        flags: if on_device && adds { GEMM_DEVICE_SCALARS } else { 0 },
                        operation,
                        x_type: kind.number,
                        y_type: kind.number,
                        scalar_type: match operation {
                            VECTOR_AXPY => factor_kind.number,
                            _ if single => real.number,
                            _ => kind.number,
                        },
                        compute: if single && kind.parts == 2 { real.number } else { compute.number },
                        reserved: 0,
                        elements,
                        step,
                        vector: [x, y + if single { 0 } else { first * element }],
                        alpha: if adds { factor } else { [0; 16] },
                        result: if adds { 0 } else { sum },
                    };
                    guest.send(&body, &[]);
                    let (place, bytes) = if adds { (y, data[1].len() as u64) } else { (sum, 16) };
                    results.push((
                        format!("{operation} of {} {elements} {step:?}", kind.number),
                        read(guest, place, bytes),
                    ));
                }
            }
        }
        for address in [x, y, sum, alpha] {
            guest.send(&MemFree { address }, &[]);
        }
    }
    results
}

#[test]
fn products_and_solves_are_those_of_the_soft_executor() {
    looped("products::products_and_solves_are_those_of_the_soft_executor", |looped| {
        let mut guest = looped.bench.guest(0);
        let found = all(&mut guest);
        let soft = Bench::soft();
        let expected = all(&mut soft.guest(0));
        assert_eq!(found.len(), expected.len());
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            assert!(found == expected, "{name}");
        }
        assert_eq!(guest.late(), None);
        // The stream's workspace, whose size depends on the compute capability, is freed with the stream.
        let before = looped.bench.session(0).expect("a session").allocated;
        guest.send(&StreamDestroy { stream: 1, reserved: 0 }, &[]);
        synchronize(&mut guest);
        assert_eq!(looped.bench.session(0).expect("a session").allocated, before - (32 << 20));
    });
}

/// Multiplies by one matrix four times. Each product is on another stream, uses the result of the one before,
/// and is ordered after it by a join, an event, or the default stream. Returns the last result.
fn chain(guest: &mut Guest) -> Vec<u8> {
    const SIDE: usize = 24;
    let numbers: Vec<u8> =
        (0..SIDE * SIDE).flat_map(|at| (f32::from((at * 7 % 5) as u8) - 2.0).to_le_bytes()).collect();
    let first = put(guest, &numbers);
    let places: Vec<u64> = (0..4).map(|_| put(guest, &vec![0; numbers.len()])).collect();
    for number in 1..=4 {
        stream(guest, number, u32::from(number != 4));
    }
    guest.send(&EventCreate { event: 1, flags: 2 }, &[]);
    let times = |stream: u32, from: u64, to: u64| Gemm {
        stream,
        size: [SIDE as u64; 3],
        leading: [SIDE as u64; 3],
        matrix: [from, first, to],
        beta: F32.scalar(0.0),
        alpha: F32.scalar(0.5),
        ..product(&PLAIN, [0; 3])
    };
    guest.send(&times(1, first, places[0]), &[]);
    guest.send(&Join { stream: 1, reserved: 0 }, &[]);
    guest.send(&times(2, places[0], places[1]), &[]);
    guest.send(&EventRecord { event: 1, stream: 2, mark: Mark::NONE }, &[]);
    guest.send(&StreamWait { stream: 4, event: 1 }, &[]);
    guest.send(&times(4, places[1], places[2]), &[]);
    // The default stream waits for blocking streams.
    guest.send(&times(0, places[2], places[3]), &[]);
    guest.send(&StreamDestroy { stream: 4, reserved: 0 }, &[]);
    read(guest, places[3], numbers.len() as u64)
}

#[test]
fn products_come_in_the_order_of_their_streams() {
    adversarial("products::products_come_in_the_order_of_their_streams", |looped| {
        let mut guest = looped.bench.guest(0);
        let expected = chain(&mut Bench::soft().guest(0));
        assert!(expected.iter().any(|&byte| byte != 0));
        assert!(chain(&mut guest) == expected);
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn a_product_that_cannot_be_is_refused_and_one_of_others_memory_ends_the_context() {
    let name = "products::a_product_that_cannot_be_is_refused_and_one_of_others_memory_ends_the_context";
    looped(name, |looped| {
        for (change, code, sticky) in [
            ((|gemm| gemm.types = [28, 28, 0]) as fn(&mut Gemm), 801, 0),
            (|gemm| gemm.compute = 70, 801, 0),
            (|gemm| gemm.leading[2] = 3, 1, 0),
            (|gemm| gemm.matrix[2] += 1 << 30, 700, 1),
            (|gemm| gemm.matrix[1] += 2, 716, 1),
            (|gemm| gemm.size[1] = 1 << 40, 700, 1),
            (|gemm| (gemm.batch, gemm.stride[0]) = (u32::MAX, i64::MAX), 700, 1),
            (|gemm| (gemm.flags, gemm.matrix[0]) = (GEMM_POINTERS, 4096), 700, 1),
            (|gemm| gemm.workspace = 4096, 700, 1),
        ] {
            let mut guest = looped.bench.guest(0);
            stream(&mut guest, 1, 1);
            let matrix = [0; 3].map(|_| put(&mut guest, &F32.numbers(1600, 5)));
            let mut body = product(&PLAIN, matrix);
            change(&mut body);
            let number = guest.send(&body, &[]);
            guest.echo();
            assert_eq!(guest.late(), Some((code, sticky, number)), "{body:?}");
            guest.detach();
        }
    });
}
