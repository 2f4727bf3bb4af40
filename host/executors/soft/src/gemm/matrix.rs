//! Matrices in device memory: their location, the check that the memory belongs to the session, and copies of
//! parts of them.

use std::ops::Range;

use ndarray::{ArrayView2, ShapeBuilder};
use vgpu_arena::{Illegal, SharedSlice, View};
use vgpu_device::{MatrixShape, Strided};

use super::element::{Element, Load, Store};
use super::error::GemmError;

/// Size of an address in an array of addresses, in bytes.
const ADDRESS: u64 = size_of::<u64>() as u64;

/// Use of a range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The range is read.
    Read,
    /// The range is written, and may be read.
    Write,
}

/// The locations of the matrices of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Location {
    /// The matrices are at equal distances of `stride` elements.
    Strided { address: u64, stride: i64 },
    /// The addresses of the matrices are in an array, which is at this device address.
    Array { address: u64 },
}

/// A matrix of each product of a batch, as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    /// Name of the matrix in errors.
    pub name: &'static str,
    pub element: Element,
    pub rows: u64,
    pub columns: u64,
    /// Leading dimension: number of elements from one column to the next.
    pub leading: u64,
    pub location: Location,
}

/// Finds the device memory at an address, which must be a multiple of `alignment`. `name` and `index` are the
/// matrix and the product that an error names.
fn aligned<'a>(
    memory: &'a View,
    (name, index): (&'static str, u64),
    (address, bytes, alignment): (u64, u64, u64),
    access: Direction,
) -> Result<SharedSlice<'a>, GemmError> {
    if !address.is_multiple_of(alignment) {
        return Err(GemmError::Misaligned { name, index, address, alignment });
    }
    let slice = match access {
        Direction::Read => memory.readable(address, bytes),
        Direction::Write => memory.writable(address, bytes),
    };
    slice.map_err(|Illegal { address, bytes }| GemmError::Illegal { name, index, address, bytes })
}

/// Reads a scalar from device memory; the first 8 bytes of `place` hold its device address. The result has
/// the scalar in its first bytes and zeros after it.
pub(super) fn scalar(
    memory: &View,
    name: &'static str,
    place: [u8; 16],
    element: Element,
) -> Result<[u8; 16], GemmError> {
    let (address, bytes) = (u128::from_le_bytes(place) as u64, element.bytes());
    let mut scalar = [0; 16];
    aligned(memory, (name, 0), (address, bytes, bytes), Direction::Read)?.copy_to(&mut scalar[..]);
    Ok(scalar)
}

impl Matrix {
    /// Refuses a leading dimension that is smaller than a column, with [`GemmError::Invalid`].
    pub(super) fn fits(self) -> Result<Self, GemmError> {
        if self.shape().fits() {
            Ok(self)
        } else {
            Err(GemmError::Invalid { name: "a leading dimension", value: self.leading })
        }
    }

    /// Returns the shape of the memory that the matrix occupies.
    const fn shape(&self) -> MatrixShape {
        let Self { rows, columns, leading, .. } = *self;
        MatrixShape { rows, columns, leading, element: self.element.bytes() }
    }

    /// Returns the number of bytes from the first element to the last; `u64::MAX` if it exceeds 64 bits.
    fn extent(&self) -> u64 {
        self.shape().bytes().unwrap_or(u64::MAX)
    }

    /// Returns the device address of the matrix of product `index`. Reads it from device memory if the batch
    /// has an array of addresses.
    fn address(&self, memory: &View, index: u64) -> Result<u64, GemmError> {
        match self.location {
            Location::Strided { address, stride } => {
                let nowhere = GemmError::Illegal { name: self.name, index, address, bytes: u64::MAX };
                Strided { address, stride, element: self.element.bytes() }.at(index).ok_or(nowhere)
            }
            Location::Array { address } => {
                let at = address.saturating_add(index * ADDRESS);
                let mut bytes = [0; ADDRESS as usize];
                let entry = (at, ADDRESS, ADDRESS);
                aligned(memory, (self.name, index), entry, Direction::Read)?.copy_to(&mut bytes[..]);
                Ok(u64::from_le_bytes(bytes))
            }
        }
    }

    /// Checks that the memory of the matrix of product `index` is the session's and aligned to an element,
    /// and returns it.
    pub(super) fn locate<'a>(
        &self,
        memory: &'a View,
        index: u64,
        access: Direction,
    ) -> Result<MatrixMemory<'a>, GemmError> {
        let address = self.address(memory, index)?;
        let place = (address, self.extent(), self.element.bytes());
        let slice = aligned(memory, (self.name, index), place, access)?;
        Ok(MatrixMemory { slice, element: self.element.bytes(), leading: self.leading })
    }
}

/// The memory of a matrix of one product.
pub(super) struct MatrixMemory<'a> {
    slice: SharedSlice<'a>,
    /// Size of an element in bytes.
    element: u64,
    leading: u64,
}

impl MatrixMemory<'_> {
    fn column(&self, row: u64, column: u64, bytes: usize) -> SharedSlice<'_> {
        let at = (column * self.leading + row) * self.element;
        self.slice.subslice(at as usize, bytes).expect("a part of a column lies within the matrix")
    }
}

/// A buffer for parts of columns, aligned to 8 bytes.
#[derive(Debug)]
pub(super) struct ColumnBuffer(Vec<u64>);

impl ColumnBuffer {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    fn bytes(&mut self, count: usize) -> &mut [u8] {
        let words = count.div_ceil(size_of::<u64>());
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
        &mut zerocopy::IntoBytes::as_mut_bytes(&mut self.0[..])[..count]
    }

    /// Loads elements of `column` from `row` on, one for each element of the slice of numbers.
    pub(super) fn read<N>(
        &mut self,
        matrix: &MatrixMemory<'_>,
        (row, column): (u64, u64),
        load: Load<N>,
        numbers: &mut [N],
    ) {
        let bytes = self.bytes(numbers.len() * matrix.element as usize);
        matrix.column(row, column, bytes.len()).copy_to(bytes);
        load(bytes, numbers);
    }

    /// Stores numbers to `column` from `row` on.
    pub(super) fn write<N>(
        &mut self,
        matrix: &MatrixMemory<'_>,
        (row, column): (u64, u64),
        store: Store<N>,
        numbers: &[N],
    ) {
        let bytes = self.bytes(numbers.len() * matrix.element as usize);
        store(numbers, bytes);
        matrix.column(row, column, bytes.len()).copy_from(bytes);
    }
}

/// A copy of a block of a matrix, column after column.
#[derive(Debug)]
pub(super) struct MatrixBlock<N> {
    pub numbers: Vec<N>,
    rows: usize,
    columns: usize,
}

impl<N> MatrixBlock<N> {
    pub(super) const fn new() -> Self {
        Self { numbers: Vec::new(), rows: 0, columns: 0 }
    }
}

impl<N: ndarray::LinalgScalar> MatrixBlock<N> {
    /// Copies rows `rows` and columns `columns` of `matrix` into the block, which gets their size.
    pub(super) fn read(
        &mut self,
        matrix: &MatrixMemory<'_>,
        rows: &Range<u64>,
        columns: &Range<u64>,
        load: Load<N>,
        column: &mut ColumnBuffer,
    ) {
        self.rows = (rows.end - rows.start) as usize;
        self.columns = (columns.end - columns.start) as usize;
        self.numbers.resize(self.rows * self.columns, N::zero());
        for (at, numbers) in columns.clone().zip(self.numbers.chunks_exact_mut(self.rows)) {
            column.read(matrix, (rows.start, at), load, numbers);
        }
    }

    /// Returns the block as an array of rows and columns, or its transpose.
    pub(super) fn view(&self, transposed: bool) -> ArrayView2<'_, N> {
        let shape = (self.rows, self.columns).f();
        let view = ArrayView2::from_shape(shape, &self.numbers).expect("as many numbers as the block has");
        if transposed { view.reversed_axes() } else { view }
    }
}
