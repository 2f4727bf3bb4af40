//! How fast products are: `cargo test --release -p vgpu-executor-soft -- --ignored --nocapture speed`.
//! One line a shape and number of threads: the best of several runs.

use std::time::Instant;

use vgpu_arena::Arena;
use vgpu_wire::body::gemm::Gemm;

use super::super::multiply;
use super::{BASE, on, scalar};

const RUNS: usize = 7;

/// Shapes of prompts of a model of 8 billion parameters, and of attention without its own kernels: name,
/// element type of A and B, of C, m, n, k, batch.
const SHAPES: &[(&str, u32, u32, [u64; 3], u32)] = &[
    ("f32 square", 0, 0, [1024, 1024, 1024], 1),
    ("f32 to the last column", 0, 0, [4096, 1, 4096], 1),
    ("f16 feed forward", 2, 0, [14336, 64, 4096], 1),
    ("bf16 feed forward", 14, 0, [14336, 64, 4096], 1),
    ("f16 attention", 2, 2, [256, 256, 128], 32),
    ("f64 square", 1, 1, [512, 512, 512], 1),
];

#[test]
#[ignore = "a measurement, without a verdict"]
fn speed() {
    let arena = Arena::new(BASE, 1 << 32).expect("an arena");
    arena.map(BASE, 1 << 30).expect("memory");
    let view = arena.view();
    for &(name, inputs, output, size, batch) in SHAPES {
        let [m, n, k] = size;
        let stride = [m * k, k * n, m * n];
        let start = [0, 1 << 28, 1 << 29].map(|offset| BASE + offset);
        for at in 0..2 {
            let one: &[u8] = match inputs {
                2 => &[0, 0x3c],
                14 => &[0x80, 0x3f],
                1 => &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
                _ => &[0, 0, 0x80, 0x3f],
            };
            let all = one.repeat((stride[at] * u64::from(batch)) as usize);
            view.writable(start[at], all.len() as u64).expect("memory").copy_from(&all);
        }
        let double = inputs == 1;
        let alpha = if double { scalar(&1f64.to_le_bytes()) } else { scalar(&1f32.to_le_bytes()) };
        let body = Gemm {
            stream: 0,
            flags: 0,
            operation: [1, 0],
            types: [inputs, inputs, output],
            compute: if double { 70 } else { 68 },
            scale: u32::from(double),
            algorithm: -1,
            math: 0,
            batch,
            size,
            leading: [k, k, m],
            stride: stride.map(u64::cast_signed),
            matrix: start,
            alpha,
            beta: [0; 16],
            workspace: 0,
            workspace_bytes: 0,
        };
        let factors = [2, m, n, k, batch.into()].map(|factor| f64::from(factor as u32));
        for threads in [1, 2, 4] {
            let mut best = f64::MAX;
            for _ in 0..RUNS {
                let begin = Instant::now();
                multiply(&view, &body, &on(threads)).expect("a product");
                best = best.min(begin.elapsed().as_secs_f64());
            }
            let rate = factors.iter().product::<f64>() / best / 1e9;
            let shape = format!("{m} x {n} x {k} x {batch}");
            println!("{name:24} {shape:24} {threads} threads {:8.2} ms {rate:6.1} GFLOP/s", best * 1e3);
        }
    }
}
