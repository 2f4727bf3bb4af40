//! Locations of the elements of matrices, which are column-major as in BLAS. They determine the memory that a
//! product accesses, which is checked against its session's memory.

/// Layout of a matrix in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShape {
    /// Number of elements of a column.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Leading dimension: number of elements from one column to the next.
    pub leading: u64,
    /// Size of an element in bytes.
    pub element: u64,
}

impl MatrixShape {
    /// Returns whether a column fits into the leading dimension. BLAS requires it even of empty matrices.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.leading >= 1 && self.leading >= self.rows
    }

    /// Returns the number of bytes from the first element to the last, which is 0 for an empty matrix.
    /// Returns `None` on overflow.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        if self.rows == 0 || self.columns == 0 {
            return Some(0);
        }
        let elements = (self.columns - 1).checked_mul(self.leading)?.checked_add(self.rows)?;
        elements.checked_mul(self.element)
    }
}

/// Batch of matrices at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    /// Device address of the first matrix.
    pub address: u64,
    /// Number of elements from one matrix to the next. A negative number goes backwards in memory.
    pub stride: i64,
    /// Size of an element in bytes.
    pub element: u64,
}

impl Strided {
    /// Returns the device address of matrix `index`, or `None` if there is no such address.
    #[must_use]
    pub fn at(&self, index: u64) -> Option<u64> {
        let distance = i128::from(index) * i128::from(self.stride);
        let bytes = distance.checked_mul(i128::from(self.element))?;
        u64::try_from(i128::from(self.address).checked_add(bytes)?).ok()
    }

    /// Returns address and length of the smallest range that contains the first `count` matrices, each of
    /// `bytes` bytes. Returns `None` if there are no such addresses, or `count` is 0.
    #[must_use]
    pub fn all(&self, count: u64, bytes: u64) -> Option<(u64, u64)> {
        let (one, other) = (self.address, self.at(count.checked_sub(1)?)?);
        let (low, high) = (one.min(other), one.max(other));
        high.checked_add(bytes).map(|end| (low, end - low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_reaches_from_its_first_element_to_its_last() {
        let shape = MatrixShape { rows: 3, columns: 4, leading: 5, element: 8 };
        assert_eq!((shape.fits(), shape.bytes()), (true, Some((3 * 5 + 3) * 8)));
        assert!(!MatrixShape { leading: 2, ..shape }.fits());
        assert!(!MatrixShape { rows: 0, leading: 0, ..shape }.fits());
        assert_eq!(MatrixShape { columns: 0, ..shape }.bytes(), Some(0));
        assert_eq!(MatrixShape { rows: 0, ..shape }.bytes(), Some(0));
        for columns in [1 << 62, u64::MAX] {
            assert_eq!(MatrixShape { columns, leading: 1 << 40, ..shape }.bytes(), None);
        }
        assert_eq!(MatrixShape { columns: 1 << 62, leading: 3, ..shape }.bytes(), None);
    }

    #[test]
    fn a_batch_reaches_both_ways() {
        let forward = Strided { address: 1000, stride: 10, element: 4 };
        assert_eq!((forward.at(0), forward.at(3)), (Some(1000), Some(1120)));
        assert_eq!(forward.all(4, 16), Some((1000, 136)));
        let backward = Strided { stride: -10, ..forward };
        assert_eq!(backward.all(4, 16), Some((880, 136)));
        assert_eq!(Strided { stride: 0, ..forward }.all(u64::MAX, 16), Some((1000, 16)));
        assert_eq!((backward.at(26), backward.all(27, 16), forward.all(0, 16)), (None, None, None));
        let far = Strided { stride: i64::MIN, element: u64::MAX, ..forward };
        assert_eq!((far.at(u64::MAX), far.all(2, 1), forward.all(1, u64::MAX)), (None, None, None));
    }
}
