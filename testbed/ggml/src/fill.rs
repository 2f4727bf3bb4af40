//! Input data. A leaf's values are drawn from a generator that is seeded by the case's name, so that a case
//! has equal inputs in every run, whatever ran before it.

use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use sha2::{Digest, Sha256};

use crate::ffi::{Ggml, Type};

/// Contents of a leaf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Real numbers drawn between two bounds.
    Uniform(f32, f32),
    /// The same value in every element.
    Constant(f32),
    /// An attention mask: biases of -1 to 1, of which rectangles of up to 64 rows by 128 columns are `-inf`
    /// or 0. The first column stays finite, so that no row is masked altogether.
    Mask,
    /// Integers from 0 up to a bound, not including it.
    Below(i64),
    /// In each row, integers from 0 up to a bound in random order, none twice.
    Distinct(i64),
    /// In each row, the numbers 0, 1, 2... in random order.
    Shuffled,
    /// Like `Shuffled`, but groups of this many numbers, adjacent in size, are made equal.
    Ties(i64),
    /// Zeros above the diagonal; real numbers between two bounds on and below it.
    LowerTriangle(f32, f32),
}

/// Returns the random generator of leaf number `leaf` of a case.
fn generator(seed: u64, case: &str, leaf: usize) -> ChaCha8Rng {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update((leaf as u64).to_le_bytes());
    hash.update(case.as_bytes());
    ChaCha8Rng::from_seed(hash.finalize().into())
}

/// Type, shape and contents of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// Type of the leaf's elements.
    pub kind: Type,
    /// Number of elements in each dimension.
    pub ne: [i64; 4],
    /// Contents of the leaf.
    pub fill: Fill,
}

impl Leaf {
    fn elements(&self) -> usize {
        self.ne.iter().product::<i64>().unsigned_abs() as usize
    }

    /// Returns the number of bytes of leaf number `index` of `case`.
    pub fn bytes(&self, ggml: &Ggml, seed: u64, case: &str, index: usize) -> Vec<u8> {
        let mut rng = generator(seed, case, index);
        if self.kind.is_integer() {
            let numbers = self.integers(&mut rng);
            return match self.kind {
                Type::I32 => numbers.iter().flat_map(|number| (*number as i32).to_le_bytes()).collect(),
                _ => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            };
        }
        self.grid_blocks(ggml, &mut rng)
            .unwrap_or_else(|| ggml.quantize(self.kind, &self.floats(&mut rng), self.ne[0]))
    }

    /// Returns random blocks of IQ1 and IQ2 types, scaled to the bound of a [`Fill::Uniform`]. GGML's
    /// quantiser for these types first sorts the distances between all points of a grid, which takes many
    /// seconds per process. Apart from the 16-bit scale, every bit pattern is a valid block.
    fn grid_blocks(&self, ggml: &Ggml, rng: &mut ChaCha8Rng) -> Option<Vec<u8>> {
        let Fill::Uniform(_, high) = self.fill else { return None };
        // The largest value of a block whose scale is 1.
        let largest = match self.kind {
            Type::IQ2_XXS | Type::IQ2_XS | Type::IQ2_S => 15.5 * 0.25 * 43.0,
            Type::IQ1_S | Type::IQ1_M => 15.0 * 1.125,
            _ => return None,
        };
        let mut bytes = vec![0; ggml.bytes(self.kind, self.elements() as i64)];
        rng.fill(&mut bytes[..]);
        for block in bytes.chunks_exact_mut(ggml.bytes(self.kind, self.kind.block())) {
            let scale = ggml.quantize(Type::F16, &[rng.random_range(0.5..=1.0) * high / largest], 1);
            if self.kind == Type::IQ1_M {
                // The upper four bits of every second byte of the last eight.
                let tail = block.len() - 8;
                for (index, byte) in block[tail..].iter_mut().skip(1).step_by(2).enumerate() {
                    let nibble = scale[index / 2] >> (4 * (index % 2)) & 15;
                    *byte = *byte & 15 | nibble << 4;
                }
            } else {
                block[..2].copy_from_slice(&scale);
            }
        }
        Some(bytes)
    }

    fn integers(&self, rng: &mut ChaCha8Rng) -> Vec<i64> {
        match self.fill {
            Fill::Uniform(low, high) => {
                (0..self.elements()).map(|_| rng.random_range(low as i64..=high as i64)).collect()
            }
            Fill::Below(bound) => (0..self.elements()).map(|_| rng.random_range(0..bound)).collect(),
            Fill::Distinct(bound) => {
                let row = self.ne[0].unsigned_abs() as usize;
                assert!(bound >= self.ne[0], "more distinct numbers than there are");
                let mut all: Vec<_> = (0..bound).collect();
                let mut numbers = Vec::with_capacity(self.elements());
                while numbers.len() < self.elements() {
                    all.shuffle(rng);
                    numbers.extend_from_slice(&all[..row]);
                }
                numbers
            }
            Fill::Constant(value) => vec![value as i64; self.elements()],
            other => panic!("{other:?} is no fill for integers"),
        }
    }

    fn floats(&self, rng: &mut ChaCha8Rng) -> Vec<f32> {
        let elements = self.elements();
        let row = self.ne[0].unsigned_abs() as usize;
        let rows = |rng: &mut ChaCha8Rng, value: &dyn Fn(usize) -> f32| {
            let mut numbers: Vec<_> = (0..row).map(value).collect();
            let mut values = Vec::with_capacity(elements);
            while values.len() < elements {
                numbers.shuffle(rng);
                values.extend_from_slice(&numbers);
            }
            values
        };
        match self.fill {
            Fill::Uniform(low, high) => (0..elements).map(|_| rng.random_range(low..=high)).collect(),
            Fill::Constant(value) => vec![value; elements],
            Fill::Mask => self.mask(rng),
            Fill::Shuffled => rows(rng, &|index| index as f32),
            Fill::Ties(equal) => rows(rng, &|index| (index / equal.unsigned_abs() as usize) as f32),
            Fill::LowerTriangle(low, high) => {
                let height = self.ne[1].unsigned_abs() as usize;
                (0..elements)
                    .map(|index| {
                        let (column, line) = (index % row, index / row % height);
                        if column <= line { rng.random_range(low..=high) } else { 0.0 }
                    })
                    .collect()
            }
            other => panic!("{other:?} is no fill for floats"),
        }
    }

    fn mask(&self, rng: &mut ChaCha8Rng) -> Vec<f32> {
        const COLUMNS: usize = 128;
        const ROWS: usize = 64;
        let width = self.ne[0].unsigned_abs() as usize;
        let height = self.elements() / width;
        let mut values: Vec<f32> = (0..self.elements()).map(|_| rng.random_range(-1.0..=1.0)).collect();
        // Covers about a fifth, but with at least one rectangle of each kind.
        let count = 2 + self.elements() / (5 * COLUMNS * ROWS);
        for number in 0..count {
            let value = if number % 2 == 0 { f32::NEG_INFINITY } else { 0.0 };
            let (top, left) = (rng.random_range(0..height), rng.random_range(1..width.max(2)));
            for line in top..height.min(top + ROWS) {
                values[line * width..][..width]
                    .iter_mut()
                    .skip(left)
                    .take(COLUMNS)
                    .for_each(|element| *element = value);
            }
        }
        values
    }
}
