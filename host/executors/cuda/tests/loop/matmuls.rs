//! Products of cuBLASLt: what the executor has it compute is what the soft executor computes itself.

use vgpu_device::Executor;
use vgpu_host_testing::bench::Bench;
use vgpu_host_testing::commands::{allocate, read, stream};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::memory::MemFree;
use vgpu_wire::facts::exec;

use crate::place::looped;
use crate::products::{F16, F32, F64, Kind, put};

const M: u64 = 24;
const N: u64 = 16;
const K: u64 = 32;
/// Elements of each matrix, whose leading dimension is 40.
const ELEMENTS: usize = 40 * 40;
const BATCH: u32 = 2;
/// Every epilogue of the contract.
const EPILOGUES: [u32; 16] = [1, 2, 4, 6, 32, 36, 130, 134, 136, 152, 160, 164, 192, 208, 256, 512];
const RELU_AUX: [u32; 4] = [130, 134, 136, 152];

/// Returns a product with this epilogue. `at` are the addresses of A, B, C, D, the bias and the auxiliary
/// matrix.
fn product(kind: Kind, compute: u32, epilogue: u32, at: [u64; 6]) -> MatmulLt {
    let masks = RELU_AUX.contains(&epilogue);
    // The epilogue with sums of B requires B transposed. The one with sums of A requires A as it is.
    let turned = u32::from(epilogue == 512);
    let scale = if kind.number == F64.number { F64 } else { F32 };
    let every = ELEMENTS as i64;
    MatmulLt {
        stream: 1,
        flags: 0,
        operation: [0, turned],
        types: [kind.number; 4],
        compute,
        scale: scale.number,
        epilogue,
        bias_type: kind.number,
        aux_type: kind.number,
        batch: BATCH,
        size: [M, N, K],
        leading: [40; 4],
        stride: [every, 0, every, every],
        matrix: [at[0], at[1], at[2], at[3]],
        alpha: scale.scalar(0.5),
        beta: scale.scalar(2.0),
        bias: at[4],
        bias_stride: 40,
        aux: at[5],
        aux_leading: if masks { 128 } else { 40 },
        aux_stride: if masks { 128 * 40 } else { every },
        workspace: 0,
        workspace_bytes: 0,
        reserved: [0; 2],
    }
}

/// Sends all products. Returns the name of each with its result: D, the bias and the auxiliary matrix, in
/// this order.
fn all(guest: &mut Guest) -> Vec<(String, Vec<u8>)> {
    stream(guest, 1, 1);
    let mut results = Vec::new();
    for (kind, compute) in [(F32, 68), (F16, 68), (F64, 70)] {
        for epilogue in EPILOGUES {
            for (name, change) in [
                ("plain", (|_, _| ()) as fn(&mut MatmulLt, u64)),
                ("scalars on the device", |body, scalars| {
                    let place = |address: u64| u128::from(address).to_le_bytes();
                    body.flags = GEMM_DEVICE_SCALARS;
                    (body.alpha, body.beta) = (place(scalars), place(scalars + 16));
                }),
                ("one column of C", |body, _| body.leading[2] = 0),
                ("no C", |body, _| (body.beta, body.matrix[2]) = ([0; 16], 0)),
            ] {
                let seeds = [1, 2, 3, 4, 5, 6];
                let data = seeds.map(|seed| kind.numbers(2 * ELEMENTS, seed));
                let at = data.each_ref().map(|data| put(guest, data));
                let mut body = product(kind, compute, epilogue, at);
                let scalars = put(guest, &[body.alpha, body.beta].concat());
                change(&mut body, scalars);
                guest.send(&body, &[]);
                let places = [3, 4, 5].map(|index| read(guest, at[index], data[index].len() as u64));
                assert!(places[0] != data[3], "{name} {epilogue}: nothing was computed");
                results.push((format!("{name}: epilogue {epilogue} of {}", kind.number), places.concat()));
                for address in at.into_iter().chain([scalars]) {
                    guest.send(&MemFree { address }, &[]);
                }
            }
        }
    }
    results
}

#[test]
fn epilogues_are_those_of_the_soft_executor() {
    looped("matmuls::epilogues_are_those_of_the_soft_executor", |looped| {
        let extensions = exec::EPILOGUES | exec::VECTORS;
        assert_eq!(looped.cuda.facts().abilities & extensions, extensions);
        let mut guest = looped.bench.guest(0);
        let found = all(&mut guest);
        let expected = all(&mut Bench::soft().guest(0));
        assert_eq!(found.len(), expected.len());
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            assert!(found == expected, "{name}");
        }
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn an_operand_of_others_ends_the_context() {
    looped("matmuls::an_operand_of_others_ends_the_context", |looped| {
        for (change, code, sticky) in [
            ((|body| body.bias = 4096) as fn(&mut MatmulLt), 700, 1),
            (|body| body.aux += 1 << 40, 700, 1),
            (|body| body.matrix[2] += 2, 716, 1),
            (|body| body.aux_leading = 8, 1, 0),
            (|body| body.types = [28; 4], 801, 0),
        ] {
            let mut guest = looped.bench.guest(0);
            stream(&mut guest, 1, 1);
            let at = [0; 6].map(|_| allocate(&mut guest, 2 * 4 * ELEMENTS as u64));
            let mut body = product(F32, 68, 164, at);
            change(&mut body);
            let number = guest.send(&body, &[]);
            guest.echo();
            assert_eq!(guest.late(), Some((code, sticky, number)), "{body:?}");
            guest.detach();
        }
    });
}
