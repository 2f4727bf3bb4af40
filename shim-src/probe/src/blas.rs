//! Multiplies matrices by cuBLAS, and computes the same product here for comparison.

use std::ffi::{c_int, c_void};
use std::ptr;

use vgpu_probe_steps::Fault;

use crate::driver::{Driver, Memory};
use crate::library::{Library, Scope};
use crate::table;

type Status = c_int;

table! {
    /// The functions of libcublas that the probe calls, the same in CUDA 12 and 13.
    Calls {
        cublasCreate_v2(*mut *mut c_void) -> Status;
        cublasDestroy_v2(*mut c_void) -> Status;
        cublasSgemm_v2(*mut c_void, c_int, c_int, c_int, c_int, c_int, *const f32, *const f32, c_int, *const f32,
            c_int, *const f32, *mut f32, c_int) -> Status;
    }
}

/// Number of rows and of columns of C, and the length of the sums. None is a multiple of a tile.
pub const SHAPE: (usize, usize, usize) = (65, 33, 70);
const TRANSPOSE: c_int = 1;
const PLAIN: c_int = 0;

fn check(call: &str, status: Status) -> Result<(), Fault> {
    if status == 0 {
        Ok(())
    } else {
        Err(Fault { call: call.into(), code: Some(status), error: "a cuBLAS error".into() })
    }
}

/// Computes `C = A^T B` with the library of this SONAME. All three matrices are column-major.
pub fn multiply(driver: &Driver, soname: &str, a: Memory, b: Memory, c: Memory) -> Result<(), Fault> {
    let calls = Calls::from_library(Library::open(soname.as_ref(), Scope::Local)?)?;
    let mut handle = ptr::null_mut();
    // SAFETY: the place is there.
    check("cublasCreate_v2", unsafe { (calls.cublasCreate_v2)(&raw mut handle) })?;
    let (rows, columns, summands) = SHAPE;
    let [rows, columns, summands] = [rows, columns, summands].map(|size| size as c_int);
    let (one, zero) = (1.0_f32, 0.0_f32);
    let [a, b, c] = [a, b, c].map(|memory| memory.address as *mut f32);
    // SAFETY: the matrices are the device's, as large as the shape says; the scalars are this process's.
    let status = unsafe {
        (calls.cublasSgemm_v2)(
            handle,
            TRANSPOSE,
            PLAIN,
            rows,
            columns,
            summands,
            &raw const one,
            a,
            summands,
            b,
            summands,
            &raw const zero,
            c,
            rows,
        )
    };
    check("cublasSgemm_v2", status)?;
    driver.wait_for_all()?;
    // SAFETY: the handle is not used again.
    check("cublasDestroy_v2", unsafe { (calls.cublasDestroy_v2)(handle) })
}

/// Computes the product of [`multiply`] here, in double precision.
pub fn expected(a: &[f32], b: &[f32]) -> Vec<f64> {
    let (rows, columns, summands) = SHAPE;
    let element = |index: usize| {
        let (row, column) = (index % rows, index / rows);
        let pairs = a[row * summands..][..summands].iter().zip(&b[column * summands..]);
        pairs.map(|(one, other)| f64::from(*one) * f64::from(*other)).sum()
    };
    (0..rows * columns).map(element).collect()
}

/// Returns the largest difference between an element and the expected one; infinite if an element is NaN.
pub fn difference(found: &[f32], expected: &[f64]) -> f64 {
    found
        .iter()
        .zip(expected)
        .map(|(found, expected)| (f64::from(*found) - expected).abs())
        // `max` alone would skip NaN, so that a product of nothing else would pass for right.
        .fold(0.0, |largest, off| if off.is_nan() { f64::INFINITY } else { largest.max(off) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_by_hand_is_of_columns() {
        let (rows, columns, summands) = SHAPE;
        let mut a = vec![0.0; rows * summands];
        let mut b = vec![0.0; columns * summands];
        // A^T at row 2, summand 3; B at summand 3, column 4.
        a[2 * summands + 3] = 5.0;
        b[4 * summands + 3] = 7.0;
        let product = expected(&a, &b);
        assert!((product[4 * rows + 2] - 35.0).abs() < 1e-12);
        assert!((product.iter().sum::<f64>() - 35.0).abs() < 1e-12);
        assert!((difference(&vec![0.0; rows * columns], &product) - 35.0).abs() < 1e-12);
        let mut found = vec![0.0; rows * columns];
        found[1] = f32::NAN;
        assert!(difference(&found, &product).is_infinite());
    }
}
