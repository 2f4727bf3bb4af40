//! The kinds of descriptors and their attributes. Numbers are those of `cublasLt.h`; sizes and initial values
//! are those that NVIDIA's libraries of CUDA 12.9 and 13.5 return.

use vgpu_abi::blas::{MATMUL_DESC_BYTES, matmul_preference_bytes, matrix_layout_bytes};

use crate::CUDA13;
use crate::record::{Attribute, DescriptorKind, needed};

/// Declares an attribute that must keep its initial value, because every message implies that.
const fn is(id: i32, bytes: usize, initial: u64) -> Attribute {
    Attribute { id, bytes, initial, free: false }
}

/// Declares an attribute that may have any value: a message carries it, it changes no result, or the code
/// that reads it checks it.
const fn free(id: i32, bytes: usize, initial: u64) -> Attribute {
    Attribute { id, bytes, initial, free: true }
}

/// Value of an attribute for a type that is not set: the type of D.
pub const NO_TYPE: u64 = 0xffff_ffff;

/// Kind of `cublasLtMatmulDesc_t`, the description of a product.
#[derive(Debug)]
pub enum Desc {}

/// Numbers of the attributes of [`Desc`] (`cublasLtMatmulDescAttributes_t`), and values that the code
/// compares with.
pub mod desc {
    pub const COMPUTE_TYPE: i32 = 0;
    pub const SCALE_TYPE: i32 = 1;
    pub const POINTER_MODE: i32 = 2;
    pub const TRANSA: i32 = 3;
    pub const TRANSB: i32 = 4;
    pub const EPILOGUE: i32 = 7;
    pub const BIAS_POINTER: i32 = 8;
    pub const BIAS_BATCH_STRIDE: i32 = 10;
    pub const EPILOGUE_AUX_POINTER: i32 = 11;
    pub const EPILOGUE_AUX_LD: i32 = 12;
    pub const EPILOGUE_AUX_BATCH_STRIDE: i32 = 13;
    pub const EPILOGUE_AUX_DATA_TYPE: i32 = 22;
    pub const BIAS_DATA_TYPE: i32 = 26;
    pub const FILL_MODE_FULL: u64 = 2;
    pub const EPILOGUE_DEFAULT: u64 = 1;
}

impl DescriptorKind for Desc {
    const COOKIE: u32 = 0x7667_6d64;
    /// Minimum length in bytes: enough for the attributes up to the bias's batch stride, which the first
    /// versions of the header had.
    const LEAST_BYTES: usize = 56;
    const ATTRIBUTES: &'static [Attribute] = if CUDA13 { DESC13 } else { DESC12 };
}

/// Attributes that both major versions have first.
const DESC: [Attribute; 25] = [
    free(desc::COMPUTE_TYPE, 4, 0),
    free(desc::SCALE_TYPE, 4, 0),
    free(desc::POINTER_MODE, 4, 0),
    free(desc::TRANSA, 4, 0),
    free(desc::TRANSB, 4, 0),
    is(5, 4, 0),                    // TRANSC
    is(6, 4, desc::FILL_MODE_FULL), // FILL_MODE
    free(desc::EPILOGUE, 4, desc::EPILOGUE_DEFAULT),
    free(desc::BIAS_POINTER, 8, 0), // and so on: without an epilogue that names them they mean nothing
    free(desc::BIAS_BATCH_STRIDE, 8, 0),
    free(desc::EPILOGUE_AUX_POINTER, 8, 0),
    free(desc::EPILOGUE_AUX_LD, 8, 0),
    free(desc::EPILOGUE_AUX_BATCH_STRIDE, 8, 0),
    is(14, 8, 0),   // ALPHA_VECTOR_BATCH_STRIDE
    free(15, 4, 0), // SM_COUNT_TARGET: of speed alone
    is(16, 4, 0),   // in no header
    is(17, 8, 0),   // A_SCALE_POINTER
    is(18, 8, 0),   // B_SCALE_POINTER
    is(19, 8, 0),   // C_SCALE_POINTER
    is(20, 8, 0),   // D_SCALE_POINTER
    is(21, 8, 0),   // AMAX_D_POINTER
    free(desc::EPILOGUE_AUX_DATA_TYPE, 4, NO_TYPE),
    free(23, 8, 0), // EPILOGUE_AUX_SCALE_POINTER: of types with 8 bits alone
    free(24, 8, 0), // EPILOGUE_AUX_AMAX_POINTER: the same
    free(25, 1, 0), // FAST_ACCUM: of types with 8 bits alone
];

/// Attributes that both major versions have later.
const DESC_SCALES: [Attribute; 7] = [
    is(31, 4, 0), // A_SCALE_MODE
    is(32, 4, 0), // B_SCALE_MODE
    is(33, 4, 0), // C_SCALE_MODE
    is(34, 4, 0), // D_SCALE_MODE
    is(35, 4, 0), // EPILOGUE_AUX_SCALE_MODE
    is(36, 8, 0), // D_OUT_SCALE_POINTER
    is(37, 4, 0), // D_OUT_SCALE_MODE
];

const fn joined<const N: usize>(middle: &[Attribute], end: &[Attribute]) -> [Attribute; N] {
    let parts = [&DESC, middle, &DESC_SCALES, end];
    let mut all = [is(0, 0, 0); N];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut from = 0;
        while from < parts[part].len() {
            all[at] = parts[part][from];
            from += 1;
            at += 1;
        }
        part += 1;
    }
    assert!(at == N);
    all
}

const DESC12: &[Attribute] = &joined::<38>(
    &[
        free(desc::BIAS_DATA_TYPE, 4, NO_TYPE),
        is(27, 4, 0), // ATOMIC_SYNC_NUM_CHUNKS_D_ROWS
        is(28, 4, 0), // ATOMIC_SYNC_NUM_CHUNKS_D_COLS
        is(29, 8, 0), // ATOMIC_SYNC_IN_COUNTERS_POINTER
        is(30, 8, 0), // ATOMIC_SYNC_OUT_COUNTERS_POINTER
    ],
    &[is(38, 4, 0)], // in no header
);

const DESC13: &[Attribute] = &joined::<37>(
    &[free(desc::BIAS_DATA_TYPE, 4, NO_TYPE)],
    &[
        is(38, 8, 0),      // EMULATION_DESCRIPTOR
        is(39, 8, 0),      // ALPHA_BATCH_STRIDE
        is(40, 8, 0),      // BETA_BATCH_STRIDE
        is(41, 4, 0x8000), // BATCH_INVARIANCE_FLAGS
    ],
);

/// Kind of `cublasLtMatrixLayout_t`, the description of a matrix or of a batch of matrices.
#[derive(Debug)]
pub enum Layout {}

/// Numbers of the attributes of [`Layout`] (`cublasLtMatrixLayoutAttribute_t`), and values that the code
/// compares with.
pub mod layout {
    pub const TYPE: i32 = 0;
    pub const ORDER: i32 = 1;
    pub const ROWS: i32 = 2;
    pub const COLS: i32 = 3;
    pub const LD: i32 = 4;
    pub const BATCH_COUNT: i32 = 5;
    pub const STRIDED_BATCH_OFFSET: i32 = 6;
    /// `CUBLASLT_ORDER_COL`: the elements of a column are adjacent.
    pub const ORDER_COL: i32 = 0;
    /// `CUBLASLT_ORDER_ROW`: the elements of a row are adjacent.
    pub const ORDER_ROW: i32 = 1;
}

impl DescriptorKind for Layout {
    const COOKIE: u32 = 0x7667_6d6c;
    const LEAST_BYTES: usize = if CUDA13 { 56 } else { 64 };
    const ATTRIBUTES: &'static [Attribute] = if CUDA13 { &LAYOUT13 } else { LAYOUT13.split_at(9).0 };
}

/// The attributes of CUDA 13. CUDA 12 has the first nine.
const LAYOUT13: [Attribute; 14] = [
    free(layout::TYPE, 4, 0),
    free(layout::ORDER, 4, 0),
    free(layout::ROWS, 8, 0),
    free(layout::COLS, 8, 0),
    free(layout::LD, 8, 0),
    free(layout::BATCH_COUNT, 4, 1),
    free(layout::STRIDED_BATCH_OFFSET, 8, 0),
    is(7, 8, 0), // PLANE_OFFSET
    is(8, 4, 0), // BATCH_MODE: strided
    is(9, 8, 0), // GROUPED: arrays of rows, columns, leading dimensions, and what integers these are
    is(10, 8, 0),
    is(11, 8, 0),
    is(12, 4, 0),
    is(13, 4, 0),
];

/// Kind of `cublasLtMatmulPreference_t`, the limits of a search for algorithms.
#[derive(Debug)]
pub enum Preference {}

impl DescriptorKind for Preference {
    const COOKIE: u32 = 0x7667_6d70;
    const LEAST_BYTES: usize = 64;
    const ATTRIBUTES: &'static [Attribute] = if CUDA13 { &PREFERENCE13 } else { PREFERENCE13.split_at(9).0 };
}

/// The attributes of CUDA 13. CUDA 12 has the first nine.
const PREFERENCE13: [Attribute; 12] = [
    free(0, 4, 0),   // SEARCH_MODE
    free(1, 8, 0),   // MAX_WORKSPACE_BYTES
    free(3, 4, 7),   // REDUCTION_SCHEME_MASK
    free(5, 4, 256), // MIN_ALIGNMENT_A_BYTES and so on
    free(6, 4, 256),
    free(7, 4, 256),
    free(8, 4, 256),
    free(9, 4, 0),         // MAX_WAVES_COUNT
    free(12, 8, u64::MAX), // IMPL_MASK
    free(13, 8, 0),        // GROUPED: averages
    free(14, 8, 0),
    free(15, 8, 0),
];

const _: () = {
    assert!(needed::<Desc>() <= MATMUL_DESC_BYTES);
    assert!(needed::<Layout>() <= matrix_layout_bytes(CUDA13));
    assert!(needed::<Preference>() <= matmul_preference_bytes(CUDA13));
};
