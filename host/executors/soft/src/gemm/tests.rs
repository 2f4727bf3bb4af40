//! Compares products and solves with sums in f64, in memory with a guard around every matrix.

mod matmuls;
mod products;
mod refusals;
mod solves;
mod vectors;

use std::num::NonZeroUsize;

use half::{bf16, f16};
use num_complex::Complex64;
use proptest::prelude::*;
use vgpu_arena::{AccessRights, Arena, PAGE, PhysicalPool, View};
use vgpu_ptx::Halt;

use super::element::Element;
use super::{GemmError, Workers};

/// Device address of the tests' memory.
const BASE: u64 = 0x7f00_0000_0000;

/// Contiguous device memory.
struct TestMemory {
    arena: Arena,
    view: View,
    bytes: u64,
}

impl TestMemory {
    /// Makes memory filled with noise, which contains NaN too.
    fn new(bytes: u64) -> Self {
        let bytes = bytes.next_multiple_of(PAGE);
        let arena = Arena::new(BASE, 1 << 30).expect("an arena");
        let physical = PhysicalPool::new().and_then(|pool| pool.allocate(bytes)).expect("memory");
        arena.map_shared(BASE, bytes, &physical, 0, AccessRights::ReadWrite).expect("a mapping");
        let memory = Self { view: arena.view(), arena, bytes };
        let noise: Vec<u8> = (0..bytes).map(|at| (noise(at) >> 56) as u8).collect();
        memory.put(BASE, &noise);
        memory
    }

    /// Returns a view of the memory with these rights.
    fn with(&self, access: AccessRights) -> View {
        self.arena.set_access(BASE, self.bytes, access).expect("a mapping");
        self.arena.view()
    }

    fn put(&self, address: u64, bytes: &[u8]) {
        self.view.writable(address, bytes.len() as u64).expect("memory").copy_from(bytes);
    }

    fn get(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        self.view.readable(address, bytes as u64).expect("memory").copy_to(&mut copy[..]);
        copy
    }

    fn all(&self) -> Vec<u8> {
        self.get(BASE, self.bytes as usize)
    }

    /// Runs a message, and checks that it writes the expected numbers. Returns the memory before and after,
    /// in which these numbers have their old values again.
    fn check(
        &self,
        compute: impl FnOnce(&View) -> Result<(), GemmError>,
        expected: &[Expected],
    ) -> Result<[Vec<u8>; 2], TestCaseError> {
        let before = self.all();
        prop_assert_eq!(compute(&self.view), Ok(()));
        let mut after = self.all();
        for &Expected { address, element, exact, bound } in expected {
            let at = (address - BASE) as usize;
            let bytes = at..at + element.bytes() as usize;
            let found = decode(&after[bytes.clone()], element);
            prop_assert!((found - exact).norm() <= bound, "{address:#x}: {found} for {exact}, bound {bound}");
            after[bytes.clone()].copy_from_slice(&before[bytes]);
        }
        Ok([before, after])
    }
}

/// A number that a message must write.
struct Expected {
    address: u64,
    element: Element,
    exact: Complex64,
    /// Largest permitted error of the number.
    bound: f64,
}

impl Expected {
    /// Makes the expectation of a number that is computed with at most this error, and then stored.
    fn stored(address: u64, element: Element, exact: Complex64, error: f64) -> Self {
        let smallest = if element == Element::F16 { 2f64.powi(-25) } else { 0.0 };
        let bound = error + rounding(element) * (exact.norm() + error) + smallest;
        Self { address, element, exact, bound }
    }
}

/// Returns a pseudo-random number, by the finaliser of splitmix64.
fn noise(at: u64) -> u64 {
    let mut x = at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns a number between -2 and 2 with at most 9 significant bits, so that narrow types represent it too.
/// For whole types it is a byte.
fn value(seed: u64, element: Element) -> Complex64 {
    let part = |bits: u64| match element {
        Element::I8 | Element::C8 => (bits as i8).into(),
        Element::I32 => (bits as i32).into(),
        _ => f64::from((bits % 513) as i32 - 256) / 128.0,
    };
    let bits = noise(seed);
    let imaginary = matches!(element, Element::C32 | Element::C64 | Element::C8);
    Complex64::new(part(bits), if imaginary { part(bits >> 32) } else { 0.0 })
}

/// Returns the bytes of a number in the format of an element.
fn encode(value: Complex64, element: Element) -> Vec<u8> {
    let Complex64 { re, im } = value;
    match element {
        Element::F32 => (re as f32).to_le_bytes().to_vec(),
        Element::F64 => re.to_le_bytes().to_vec(),
        Element::F16 => f16::from_f64(re).to_le_bytes().to_vec(),
        Element::Bf16 => bf16::from_f64(re).to_le_bytes().to_vec(),
        Element::I8 => (re as i8).to_le_bytes().to_vec(),
        Element::I32 => (re as i32).to_le_bytes().to_vec(),
        Element::C32 => [(re as f32).to_le_bytes(), (im as f32).to_le_bytes()].concat(),
        Element::C64 => [re.to_le_bytes(), im.to_le_bytes()].concat(),
        Element::C8 => [(re as i8).to_le_bytes(), (im as i8).to_le_bytes()].concat(),
    }
}

fn low<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes[..N].try_into().expect("enough bytes")
}

/// Returns the number that the bytes of an element represent.
fn decode(bytes: &[u8], element: Element) -> Complex64 {
    let real = |value: f64| Complex64::new(value, 0.0);
    match element {
        Element::F32 => real(f32::from_le_bytes(low(bytes)).into()),
        Element::F64 => real(f64::from_le_bytes(low(bytes))),
        Element::F16 => real(f16::from_le_bytes(low(bytes)).into()),
        Element::Bf16 => real(bf16::from_le_bytes(low(bytes)).into()),
        Element::I8 => real(i8::from_le_bytes(low(bytes)).into()),
        Element::I32 => real(i32::from_le_bytes(low(bytes)).into()),
        Element::C32 => {
            Complex64::new(f32::from_le_bytes(low(bytes)).into(), f32::from_le_bytes(low(&bytes[4..])).into())
        }
        Element::C64 => Complex64::new(f64::from_le_bytes(low(bytes)), f64::from_le_bytes(low(&bytes[8..]))),
        Element::C8 => {
            Complex64::new(i8::from_le_bytes(low(bytes)).into(), i8::from_le_bytes(low(&bytes[1..])).into())
        }
    }
}

/// Returns the largest relative error of rounding to nearest in this type. The absolute error of its smallest
/// numbers is below the tests' bounds, except for f16, where it is 2^-25.
fn rounding(element: Element) -> f64 {
    match element {
        Element::F16 => 2f64.powi(-11),
        Element::Bf16 => 2f64.powi(-8),
        Element::F32 | Element::C32 => 2f64.powi(-24),
        Element::F64 | Element::C64 => 2f64.powi(-53),
        Element::I8 | Element::I32 | Element::C8 => 0.0,
    }
}

/// A column-major matrix of a test, as it is stored.
#[derive(Clone, Copy, Debug)]
struct Stored {
    element: Element,
    address: u64,
    leading: u64,
}

impl Stored {
    fn place(&self, row: u64, column: u64) -> u64 {
        self.address + (column * self.leading + row) * self.element.bytes()
    }

    fn get(&self, memory: &TestMemory, row: u64, column: u64) -> Complex64 {
        let bytes = memory.get(self.place(row, column), self.element.bytes() as usize);
        decode(&bytes, self.element)
    }

    /// Returns an element of the matrix after the `cublasOperation_t`.
    fn turned(&self, memory: &TestMemory, operation: u32, row: u64, column: u64) -> Complex64 {
        match operation {
            0 => self.get(memory, row, column),
            1 => self.get(memory, column, row),
            _ => self.get(memory, column, row).conj(),
        }
    }

    /// Writes values to all elements.
    fn fill(&self, memory: &TestMemory, rows: u64, columns: u64, seed: u64) {
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let value = value(seed ^ (row << 20) ^ column, self.element);
            memory.put(self.place(row, column), &encode(value, self.element));
        }
    }
}

/// Returns a scalar in the message's format.
fn scalar(bytes: &[u8]) -> [u8; 16] {
    let mut scalar = [0; 16];
    scalar[..bytes.len()].copy_from_slice(bytes);
    scalar
}

/// Converts a small count to f64.
fn count(things: u64) -> f64 {
    u32::try_from(things).expect("a small number").into()
}

/// Returns the threads of a run with this number of threads that is never stopped.
fn on(threads: usize) -> Workers<'static> {
    Workers { threads: NonZeroUsize::new(threads).expect("a thread"), check: &|| Ok(()) }
}

/// Returns what a run's check returns to stop or to continue.
const fn stop_if(stop: bool) -> Result<(), Halt> {
    if stop { Err(Halt::Stopped) } else { Ok(()) }
}
