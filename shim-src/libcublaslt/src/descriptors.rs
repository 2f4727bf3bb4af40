//! The exports that create, set, read and destroy descriptors of products, matrices and preferences. Values
//! are kept as they are given and checked when they are used, as by NVIDIA's library.

use std::ffi::{c_int, c_void};

use vgpu_abi::blas::{BlasStatus, Out};
use vgpu_abi::export;

use crate::Result;
use crate::kinds::{Desc, Layout, Preference, desc, layout};
use crate::record::Record;

fn set_desc(record: Record<Desc>, compute: c_int, scale: c_int) -> Result {
    record.put(desc::COMPUTE_TYPE, compute.cast_unsigned().into())?;
    record.put(desc::SCALE_TYPE, scale.cast_unsigned().into())
}

fn set_layout(record: Record<Layout>, kind: c_int, rows: u64, columns: u64, leading: i64) -> Result {
    record.put(layout::TYPE, kind.cast_unsigned().into())?;
    record.put(layout::ROWS, rows)?;
    record.put(layout::COLS, columns)?;
    record.put(layout::LD, leading.cast_unsigned())
}

export! {
    /// Creates a descriptor of a product.
    pub fn cublasLtMatmulDescCreate(place: Out<Record<Desc>>, compute: c_int, scale: c_int) -> BlasStatus {
        set_desc(Record::create(place)?, compute, scale)
    }

    /// Initializes a descriptor of a product in the program's memory.
    pub fn cublasLtMatmulDescInit_internal(
        record: Record<Desc>, bytes: usize, compute: c_int, scale: c_int,
    ) -> BlasStatus {
        record.initialise(bytes)?;
        set_desc(record, compute, scale)
    }

    /// Destroys a descriptor of a product.
    pub fn cublasLtMatmulDescDestroy(record: Record<Desc>) -> BlasStatus {
        record.destroy()
    }

    /// Sets an attribute of a product.
    pub fn cublasLtMatmulDescSetAttribute(
        record: Record<Desc>, id: c_int, value: *const c_void, bytes: usize,
    ) -> BlasStatus {
        record.set(id, value, bytes)
    }

    /// Stores the value of a product's attribute, and its length.
    pub fn cublasLtMatmulDescGetAttribute(
        record: Record<Desc>, id: c_int, value: *mut c_void, bytes: usize, written: Out<usize>,
    ) -> BlasStatus {
        record.get(id, value, bytes, written)
    }

    /// Creates a descriptor of a matrix.
    pub fn cublasLtMatrixLayoutCreate(
        place: Out<Record<Layout>>, kind: c_int, rows: u64, columns: u64, leading: i64,
    ) -> BlasStatus {
        set_layout(Record::create(place)?, kind, rows, columns, leading)
    }

    /// Initializes a descriptor of a matrix in the program's memory.
    pub fn cublasLtMatrixLayoutInit_internal(
        record: Record<Layout>, bytes: usize, kind: c_int, rows: u64, columns: u64, leading: i64,
    ) -> BlasStatus {
        record.initialise(bytes)?;
        set_layout(record, kind, rows, columns, leading)
    }

    /// Destroys a descriptor of a matrix.
    pub fn cublasLtMatrixLayoutDestroy(record: Record<Layout>) -> BlasStatus {
        record.destroy()
    }

    /// Sets an attribute of a matrix.
    pub fn cublasLtMatrixLayoutSetAttribute(
        record: Record<Layout>, id: c_int, value: *const c_void, bytes: usize,
    ) -> BlasStatus {
        record.set(id, value, bytes)
    }

    /// Stores the value of a matrix's attribute, and its length.
    pub fn cublasLtMatrixLayoutGetAttribute(
        record: Record<Layout>, id: c_int, value: *mut c_void, bytes: usize, written: Out<usize>,
    ) -> BlasStatus {
        record.get(id, value, bytes, written)
    }

    /// Creates a descriptor of preferences.
    pub fn cublasLtMatmulPreferenceCreate(place: Out<Record<Preference>>) -> BlasStatus {
        Record::create(place)?;
        Ok(())
    }

    /// Initializes a descriptor of preferences in the program's memory.
    pub fn cublasLtMatmulPreferenceInit_internal(record: Record<Preference>, bytes: usize) -> BlasStatus {
        record.initialise(bytes)
    }

    /// Destroys a descriptor of preferences.
    pub fn cublasLtMatmulPreferenceDestroy(record: Record<Preference>) -> BlasStatus {
        record.destroy()
    }

    /// Sets an attribute of preferences.
    pub fn cublasLtMatmulPreferenceSetAttribute(
        record: Record<Preference>, id: c_int, value: *const c_void, bytes: usize,
    ) -> BlasStatus {
        record.set(id, value, bytes)
    }

    /// Stores the value of a preference's attribute, and its length.
    pub fn cublasLtMatmulPreferenceGetAttribute(
        record: Record<Preference>, id: c_int, value: *mut c_void, bytes: usize, written: Out<usize>,
    ) -> BlasStatus {
        record.get(id, value, bytes, written)
    }
}
