//! `mma.sync` of matrices with eight columns: `D = A B + C`.
//!
//! All shapes except m8n8k4 of halves have one layout. Lane `4 * g + t` has elements of row `g` of A, C and
//! D, and of row `g + 8` where there are 16, and of column `g` of B. A register of A or B holds neighbouring
//! elements along `k`, of which the four lanes of a group have four times as many. Of C and D a lane has
//! columns `2 t` and `2 t + 1`. The registers of A go through the rows first.
//!
//! Products of halves, of bfloat16 and of TF32 are exact. They are added to each other in 32 bits, and then
//! to C. The ISA leaves the order and the roundings open.

use std::marker::PhantomData;

use crate::machine::{Env, Frame, Inst, Isa, LANES, LEAVE, LaneType, Operation, ProductOperands, Slot, Warp};
use crate::ops::half::to_half;
use crate::ops::warps::missing;
use crate::ops::{double, float};

/// Maximum number of rows of A. The next constant is the maximum number of elements along `k`.
const ROWS: usize = 16;
const DEPTH: usize = 32;
const COLUMNS: usize = 8;

/// Arithmetic of matrix elements. C and D consist of these numbers, and elements of A and B are converted to
/// them.
pub(crate) trait MatrixNumber: LaneType + Default {
    /// Returns `sum + a * b`.
    fn add_product(sum: Self, a: Self, b: Self) -> Self;
    /// Returns `c + sum` in the form that D holds. With `saturates`, integers are clamped to their range.
    fn accumulate(c: Self, sum: Self, saturates: bool) -> Self;
    /// Converts the two elements in each register of halves. Only `f32` supports it.
    fn of_halves<I: Isa>(words: &[u32; LANES]) -> [[Self; LANES]; 2];
    /// Packs two elements into a register of halves. Only `f32` supports it.
    fn to_halves(elements: [Self; 2]) -> u32;
}

impl MatrixNumber for f32 {
    #[inline(always)]
    fn add_product(sum: Self, a: Self, b: Self) -> Self {
        sum + a * b
    }

    #[inline(always)]
    fn accumulate(c: Self, sum: Self, _: bool) -> Self {
        float::canonical(c + sum)
    }

    #[inline(always)]
    fn of_halves<I: Isa>(words: &[u32; LANES]) -> [[Self; LANES]; 2] {
        [I::from_halves::<false>(words), I::from_halves::<true>(words)]
    }

    #[inline(always)]
    fn to_halves([low, high]: [Self; 2]) -> u32 {
        to_half(low) | to_half(high) << 16
    }
}

/// Implements the half-precision conversions for number types that do not support them.
macro_rules! whole {
    () => {
        fn of_halves<I: Isa>(_: &[u32; LANES]) -> [[Self; LANES]; 2] {
            [[Self::default(); LANES]; 2]
        }

        fn to_halves(_: [Self; 2]) -> u32 {
            0
        }
    };
}

impl MatrixNumber for u32 {
    #[inline(always)]
    fn add_product(sum: Self, a: Self, b: Self) -> Self {
        sum.wrapping_add(a.wrapping_mul(b))
    }

    #[inline(always)]
    fn accumulate(c: Self, sum: Self, saturates: bool) -> Self {
        // The sum of 32 products of bytes is far from the ends.
        if saturates {
            c.cast_signed().saturating_add(sum.cast_signed()).cast_unsigned()
        } else {
            c.wrapping_add(sum)
        }
    }

    whole! {}
}

impl MatrixNumber for f64 {
    #[inline(always)]
    fn add_product(sum: Self, a: Self, b: Self) -> Self {
        a.mul_add(b, sum)
    }

    #[inline(always)]
    fn accumulate(c: Self, sum: Self, _: bool) -> Self {
        double::canonical(c + sum)
    }

    whole! {}
}

/// Type of the elements of A or B in a register.
pub(crate) trait Fragment: 'static {
    /// Number type to which elements are converted.
    type Value: MatrixNumber;
    /// Number of elements in a register.
    const EACH: usize;
    /// Calls `put` with the index of each element in its register, and with the element of all lanes.
    fn each<I: Isa>(frame: &Frame, slot: Slot, put: impl FnMut(usize, &[Self::Value; LANES]));
}

/// Elements of half precision, two in a register.
pub(crate) struct Halves;

impl Fragment for Halves {
    type Value = f32;
    const EACH: usize = 2;

    #[inline(always)]
    fn each<I: Isa>(frame: &Frame, slot: Slot, mut put: impl FnMut(usize, &[f32; LANES])) {
        let words = frame.vector::<u32>(slot);
        put(0, &I::from_halves::<false>(words));
        put(1, &I::from_halves::<true>(words));
    }
}

/// Elements of type bfloat16, the upper half of single precision, two in a register.
pub(crate) struct Brains;

impl Fragment for Brains {
    type Value = f32;
    const EACH: usize = 2;

    #[inline(always)]
    fn each<I: Isa>(frame: &Frame, slot: Slot, mut put: impl FnMut(usize, &[f32; LANES])) {
        let words = frame.vector::<u32>(slot);
        put(0, &words.map(|word| f32::from_bits(word << 16)));
        put(1, &words.map(|word| f32::from_bits(word & 0xffff_0000)));
    }
}

/// Elements of type TF32, single precision without the lower 13 bits of the fraction.
pub(crate) struct Singles;

impl Fragment for Singles {
    type Value = f32;
    const EACH: usize = 1;

    #[inline(always)]
    fn each<I: Isa>(frame: &Frame, slot: Slot, mut put: impl FnMut(usize, &[f32; LANES])) {
        put(0, &frame.vector::<u32>(slot).map(|word| f32::from_bits(word & 0xffff_e000)));
    }
}

/// Byte elements, four in a register, signed or unsigned.
pub(crate) struct Bytes<const SIGNED: bool>;

impl<const SIGNED: bool> Fragment for Bytes<SIGNED> {
    type Value = u32;
    const EACH: usize = 4;

    #[inline(always)]
    fn each<I: Isa>(frame: &Frame, slot: Slot, mut put: impl FnMut(usize, &[u32; LANES])) {
        let words = frame.vector::<u32>(slot);
        for index in 0..4 {
            let byte = |word: u32| (word >> (8 * index)) as u8;
            let value = |word| if SIGNED { byte(word) as i8 as u32 } else { u32::from(byte(word)) };
            put(index, &words.map(value));
        }
    }
}

/// Elements of double precision, in registers of 64 bits.
pub(crate) struct Doubles;

impl Fragment for Doubles {
    type Value = f64;
    const EACH: usize = 1;

    #[inline(always)]
    fn each<I: Isa>(frame: &Frame, slot: Slot, mut put: impl FnMut(usize, &[f64; LANES])) {
        put(0, frame.vector::<f64>(slot));
    }
}

/// Executes `mma.sync`. `x` is the index of the [`ProductOperands`].
pub(crate) struct Multiply<A, B>(PhantomData<(A, B)>);

impl<A: Fragment, B: Fragment<Value = A::Value>> Operation for Multiply<A, B> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let tables = env.tables;
        let product = &tables.products[inst.x as usize];
        if missing(warp, product.members, pc) {
            return LEAVE;
        }
        let zero = A::Value::default();
        let mut a = [[zero; DEPTH]; ROWS];
        for (index, &slot) in product.a.iter().enumerate() {
            let (row, k) = (index % product.eights * 8, index / product.eights * 4 * A::EACH);
            A::each::<I>(&warp.frame, slot, |element, values| {
                for (lane, &value) in values.iter().enumerate() {
                    a[row + lane / 4][k + lane % 4 * A::EACH + element] = value;
                }
            });
        }
        let mut b = [[zero; COLUMNS]; DEPTH];
        for (index, &slot) in product.b.iter().enumerate() {
            B::each::<I>(&warp.frame, slot, |element, values| {
                for (lane, &value) in values.iter().enumerate() {
                    b[4 * B::EACH * index + lane % 4 * B::EACH + element][lane / 4] = value;
                }
            });
        }
        let mut c = accumulators::<I, A::Value>(&warp.frame, product);
        let depth = 4 * B::EACH * product.b.len();
        for (a, c) in a.iter().zip(&mut c).take(8 * product.eights) {
            let mut sums = [zero; COLUMNS];
            for (&a, b) in a.iter().zip(&b).take(depth) {
                for (sum, &b) in sums.iter_mut().zip(b) {
                    *sum = MatrixNumber::add_product(*sum, a, b);
                }
            }
            for (c, sum) in c.iter_mut().zip(sums) {
                *c = MatrixNumber::accumulate(*c, sum, product.saturates);
            }
        }
        results(warp, product, &c);
        pc + 1
    }
}

/// Reads the elements of C in row order.
#[inline(always)]
fn accumulators<I: Isa, N: MatrixNumber>(frame: &Frame, product: &ProductOperands) -> [[N; COLUMNS]; ROWS] {
    let mut c = [[N::default(); COLUMNS]; ROWS];
    let mut put = |index: usize, values: &[N; LANES]| {
        for (lane, &value) in values.iter().enumerate() {
            c[index / 2 * 8 + lane / 4][lane % 4 * 2 + index % 2] = value;
        }
    };
    for (index, &slot) in product.c.iter().enumerate() {
        if product.halves {
            let pair = N::of_halves::<I>(frame.vector::<u32>(slot));
            put(2 * index, &pair[0]);
            put(2 * index + 1, &pair[1]);
        } else {
            put(index, frame.vector::<N>(slot));
        }
    }
    c
}

/// Writes the elements of D to the active lanes.
#[inline(always)]
fn results<N: MatrixNumber>(warp: &mut Warp, product: &ProductOperands, d: &[[N; COLUMNS]; ROWS]) {
    let mask = warp.mask;
    for (index, &slot) in product.d.iter().enumerate() {
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            let column = lane % 4 * 2;
            if product.halves {
                let row = &d[8 * index + lane / 4];
                warp.frame.vector_mut::<u32>(slot)[lane] = N::to_halves([row[column], row[column + 1]]);
            } else {
                let row = &d[index / 2 * 8 + lane / 4];
                warp.frame.vector_mut::<N>(slot)[lane] = row[column + index % 2];
            }
        }
    }
}
