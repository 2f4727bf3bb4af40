//! Times GGML's `mul_mat_vec_q` for one column, of Q4_1, Q5_0 and Q8_0, from a PTX file of sm_61, on random
//! data, and compares the results with a plain computation.
//!
//! `mul_mat_vec_q FILE.ptx [THREADS] [ROWS] [COLUMNS]`

#![forbid(unsafe_code)]
#![allow(clippy::cast_precision_loss, reason = "counts for a human")]

use std::error::Error;
use std::time::Instant;

use vgpu_arena::Arena;
use vgpu_ptx::Module;
use vgpu_simt::{Control, GridLaunch, Output, Pool, Program, launch_grid};

/// Values of a quantised block.
const BLOCK: usize = 32;
/// Where device memory begins.
const BASE: u64 = 0x7000_0000_0000;

/// Prints what kernels print.
struct Terminal;

impl Output for Terminal {
    fn printf(&self, text: &str) {
        print!("{text}");
    }
}

/// A small generator: the same data each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// A half between 1/64 and 1/32, and its value.
    fn scale(&mut self) -> (u16, f64) {
        let fraction = (self.next() & 0x3ff) as u16;
        (0x2400 | fraction, (1.0 + f64::from(fraction) / 1024.0) / 64.0)
    }
}

/// A quantised matrix or vector: its bytes, and the values.
struct Quantised {
    bytes: Vec<u8>,
    values: Vec<f64>,
}

/// Random blocks of a type.
fn quantise(random: &mut Random, kind: Kind, count: usize) -> Quantised {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for _ in 0..count / BLOCK {
        let (bits, scale) = random.scale();
        bytes.extend(bits.to_le_bytes());
        let quants: Vec<u8> = (0..BLOCK).map(|_| random.next() as u8).collect();
        match kind {
            Kind::Q4_1 => {
                let (bits, least) = random.scale();
                bytes.extend(bits.to_le_bytes());
                let nibbles: Vec<u8> = quants.iter().map(|quant| quant & 15).collect();
                bytes.extend((0..16).map(|index| nibbles[index] | nibbles[index + 16] << 4));
                values.extend(nibbles.iter().map(|&quant| scale * f64::from(quant) + least));
            }
            Kind::Q5_0 => {
                let fives: Vec<u8> = quants.iter().map(|quant| quant & 31).collect();
                let high = (0..BLOCK).fold(0, |bits, index| bits | u32::from(fives[index] >> 4) << index);
                bytes.extend(high.to_le_bytes());
                bytes.extend((0..16).map(|index| fives[index] & 15 | fives[index + 16] << 4));
                values.extend(fives.iter().map(|&quant| scale * (f64::from(quant) - 16.0)));
            }
            Kind::Q8_0 => {
                bytes.extend(&quants);
                values.extend(quants.iter().map(|&quant| scale * f64::from(quant as i8)));
            }
            Kind::Q8_1 => {
                // The sum of the block's values follows the scale.
                let sum: i32 = quants.iter().map(|&quant| i32::from(quant as i8)).sum();
                let exact = scale * f64::from(sum);
                let half = half::f16::from_f64(exact);
                bytes.extend(half.to_bits().to_le_bytes());
                bytes.extend(&quants);
                values.extend(quants.iter().map(|&quant| scale * f64::from(quant as i8)));
            }
        }
    }
    Quantised { bytes, values }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Q4_1,
    Q5_0,
    Q8_0,
    Q8_1,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("mul_mat_vec_q FILE.ptx [THREADS] [ROWS] [COLUMNS]")?;
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (threads, rows, columns) = (number(1)?, number(1536)?, number(576)?);
    let module = Module::parse(std::fs::read(path)?)?;
    let pool = Pool::new(threads);
    for (kind, number) in [(Kind::Q4_1, 3), (Kind::Q5_0, 6), (Kind::Q8_0, 8)] {
        let start = format!("_Z13mul_mat_vec_qIL9ggml_type{number}ELi1ELb0ELb1ELb0E");
        let name = module.kernel_names().find(|name| name.starts_with(&start)).ok_or("no such kernel")?;
        measure(&module, name, kind, &pool, rows, columns)?;
    }
    Ok(())
}

fn measure(
    module: &Module,
    name: &str,
    kind: Kind,
    pool: &Pool,
    rows: usize,
    columns: usize,
) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let kernel = module.kernel(name)?;
    let parsed = begin.elapsed();
    let begin = Instant::now();
    let program = Program::new(&kernel, &vec![0; module.globals().len()])?;
    println!("{kind:?}: parsed in {parsed:?}, lowered in {:?}", begin.elapsed());

    let mut random = Random(1);
    let matrix = quantise(&mut random, kind, rows * columns);
    let vector = quantise(&mut random, Kind::Q8_1, columns);
    let arena = Arena::new(BASE, 1 << 36)?;
    let mut next = BASE;
    let mut place = |bytes: usize| -> Result<u64, Box<dyn Error>> {
        let at = next;
        arena.map(at, bytes as u64)?;
        next += (bytes as u64).next_multiple_of(1 << 21) + (1 << 21);
        Ok(at)
    };
    let (x, y, out) = (place(matrix.bytes.len())?, place(vector.bytes.len() + 4096)?, place(rows * 4)?);
    let view = arena.view();
    view.writable(x, matrix.bytes.len() as u64)?.copy_from(&matrix.bytes);
    view.writable(y, vector.bytes.len() as u64)?.copy_from(&vector.bytes);

    let blocks = (columns / BLOCK) as u32;
    let params = parameters(x, y, out, columns as u32, rows as u32, blocks);
    let launch = GridLaunch {
        grid: [(rows as u32).div_ceil(4), 1, 1],
        block: [32, 4, 1],
        dynamic_shared: 0,
        stack: 0,
        heap: None,
        params: &params,
        cooperative: false,
        workspace: 0,
    };
    let control = Control::new();
    let mut best = f64::MAX;
    for _ in 0..200 {
        let begin = Instant::now();
        launch_grid(&program, &launch, &view, pool, &control, &Terminal)?;
        best = best.min(begin.elapsed().as_secs_f64());
    }

    let mut result = vec![0u8; rows * 4];
    view.readable(out, rows as u64 * 4)?.copy_to(&mut result);
    let (mut error, mut largest) = (0f64, 0f64);
    for (row, bytes) in result.as_chunks::<4>().0.iter().enumerate() {
        let values = &matrix.values[row * columns..][..columns];
        let exact: f64 = values.iter().zip(&vector.values).map(|(a, b)| a * b).sum();
        error = error.max((f64::from(f32::from_le_bytes(*bytes)) - exact).abs());
        largest = largest.max(exact.abs());
    }
    println!(
        "{kind:?} {rows} x {columns}: {:.1} us, {:.1} ns a row and block of 32, largest error {:.1e} of the largest result",
        best * 1e6,
        best * 1e9 / (rows * columns / BLOCK) as f64,
        error / largest
    );
    if error > largest * 2e-3 {
        return Err("the results are wrong".into());
    }
    Ok(())
}

/// The kernel's parameters, as `ggml_cuda_mul_mat_vec_q` fills them for one matrix and one column.
fn parameters(x: u64, y: u64, out: u64, columns: u32, rows: u32, blocks: u32) -> Vec<u8> {
    let mut params = Vec::new();
    params.extend(x.to_le_bytes());
    params.extend(y.to_le_bytes());
    params.extend(0u64.to_le_bytes());
    params.extend([0; 48]);
    params.extend(out.to_le_bytes());
    // A division by one: multiplier, shift, divisor.
    let one = [1, 0, 1];
    let words: Vec<u32> = [
        &[columns][..],
        &one,
        &[blocks, blocks, rows],
        &one,
        &[blocks * rows, blocks, rows],
        &one,
        &[blocks * rows, blocks, rows, 0],
    ]
    .concat();
    params.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    params
}
