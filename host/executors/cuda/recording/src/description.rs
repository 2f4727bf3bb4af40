//! Descriptors of cuBLASLt: of a product, of a matrix, and of what an algorithm may rely on. They are host
//! data and belong to no context.
//!
//! Numbers, sizes and initial values of the attributes are those of `cublasLt.h`, by the manual's tables.

use crate::rule::{CallResult, Rule};

#[derive(Debug)]
struct Attribute {
    id: i32,
    /// Size of the attribute's value in bytes.
    bytes: usize,
    initial: u64,
    /// Returns whether a value of the attribute is valid.
    can_be: fn(u64) -> bool,
}

const fn attribute(id: i32, bytes: usize, initial: u64, can_be: fn(u64) -> bool) -> Attribute {
    Attribute { id, bytes, initial, can_be }
}

const fn any(_: u64) -> bool {
    true
}

/// Returns whether a value is a valid `cublasOperation_t`: none, transposed or conjugated.
const fn operation(value: u64) -> bool {
    value <= 2
}

/// Returns whether a value is a valid `cublasLtPointerMode_t`.
const fn pointer_mode(value: u64) -> bool {
    value <= 4
}

/// Returns whether a value is a valid `cublasLtEpilogue_t`.
const fn epilogue(value: u64) -> bool {
    matches!(value, 1 | 2 | 4 | 6 | 32 | 36 | 130 | 134 | 136 | 152 | 160 | 164 | 192 | 208 | 256 | 512)
}

/// Returns whether a value is a valid `cublasLtOrder_t`.
const fn order(value: u64) -> bool {
    value <= 4
}

/// Returns whether a count is not negative.
const fn count(value: u64) -> bool {
    (value as u32).cast_signed() >= 0
}

/// Returns whether an alignment is a power of two.
const fn alignment(value: u64) -> bool {
    value.is_power_of_two()
}

/// Numbers of the attributes of a product, `cublasLtMatmulDescAttributes_t`.
pub mod product {
    pub const COMPUTE_TYPE: i32 = 0;
    pub const SCALE_TYPE: i32 = 1;
    pub const POINTER_MODE: i32 = 2;
    pub const TRANSA: i32 = 3;
    pub const TRANSB: i32 = 4;
    pub const EPILOGUE: i32 = 7;
    pub const BIAS_POINTER: i32 = 8;
    pub const BIAS_BATCH_STRIDE: i32 = 10;
    pub const AUX_POINTER: i32 = 11;
    pub const AUX_LD: i32 = 12;
    pub const AUX_BATCH_STRIDE: i32 = 13;
    pub const AUX_DATA_TYPE: i32 = 22;
    pub const BIAS_DATA_TYPE: i32 = 26;
}

/// Value of an element type that is not set, which stands for the type of D.
pub const NO_TYPE: u64 = 0xffff_ffff;

const PRODUCT: &[Attribute] = &[
    attribute(product::COMPUTE_TYPE, 4, 0, any),
    attribute(product::SCALE_TYPE, 4, 0, any),
    attribute(product::POINTER_MODE, 4, 0, pointer_mode),
    attribute(product::TRANSA, 4, 0, operation),
    attribute(product::TRANSB, 4, 0, operation),
    attribute(product::EPILOGUE, 4, 1, epilogue),
    attribute(product::BIAS_POINTER, 8, 0, any),
    attribute(product::BIAS_BATCH_STRIDE, 8, 0, any),
    attribute(product::AUX_POINTER, 8, 0, any),
    attribute(product::AUX_LD, 8, 0, any),
    attribute(product::AUX_BATCH_STRIDE, 8, 0, any),
    attribute(product::AUX_DATA_TYPE, 4, NO_TYPE, any),
    attribute(product::BIAS_DATA_TYPE, 4, NO_TYPE, any),
];

/// Numbers of the attributes of a matrix, `cublasLtMatrixLayoutAttribute_t`.
pub mod layout {
    pub const TYPE: i32 = 0;
    pub const ORDER: i32 = 1;
    pub const ROWS: i32 = 2;
    pub const COLUMNS: i32 = 3;
    pub const LD: i32 = 4;
    pub const BATCH_COUNT: i32 = 5;
    pub const STRIDED_BATCH_OFFSET: i32 = 6;
}

const LAYOUT: &[Attribute] = &[
    attribute(layout::TYPE, 4, 0, any),
    attribute(layout::ORDER, 4, 0, order),
    attribute(layout::ROWS, 8, 0, any),
    attribute(layout::COLUMNS, 8, 0, any),
    attribute(layout::LD, 8, 0, any),
    attribute(layout::BATCH_COUNT, 4, 1, count),
    attribute(layout::STRIDED_BATCH_OFFSET, 8, 0, any),
];

/// Numbers of the attributes of a preference, `cublasLtMatmulPreferenceAttributes_t`.
pub mod preference {
    pub const MAX_WORKSPACE_BYTES: i32 = 1;
    /// Attributes for the alignments of A, B, C and D.
    pub const MIN_ALIGNMENT_BYTES: [i32; 4] = [5, 6, 7, 8];
}

const PREFERENCE: &[Attribute] = &[
    attribute(preference::MAX_WORKSPACE_BYTES, 8, 0, any),
    attribute(preference::MIN_ALIGNMENT_BYTES[0], 4, 256, alignment),
    attribute(preference::MIN_ALIGNMENT_BYTES[1], 4, 256, alignment),
    attribute(preference::MIN_ALIGNMENT_BYTES[2], 4, 256, alignment),
    attribute(preference::MIN_ALIGNMENT_BYTES[3], 4, 256, alignment),
];

/// A descriptor: the values of its attributes.
#[derive(Debug)]
pub struct LtDescription {
    attributes: &'static [Attribute],
    values: Vec<u64>,
}

impl LtDescription {
    fn new(attributes: &'static [Attribute]) -> Self {
        Self { attributes, values: attributes.iter().map(|one| one.initial).collect() }
    }

    /// Creates the descriptor of a product.
    pub fn product(compute: i32, scale: i32) -> Self {
        let set = [(product::COMPUTE_TYPE, compute), (product::SCALE_TYPE, scale)];
        set.into_iter()
            .fold(Self::new(PRODUCT), |record, (id, value)| record.with(id, u64::from(value as u32)))
    }

    /// Creates the descriptor of a matrix.
    pub fn layout(kind: i32, rows: u64, columns: u64, leading: i64) -> Self {
        Self::new(LAYOUT)
            .with(layout::TYPE, u64::from(kind as u32))
            .with(layout::ROWS, rows)
            .with(layout::COLUMNS, columns)
            .with(layout::LD, leading.cast_unsigned())
    }

    /// Creates the descriptor of what an algorithm may rely on.
    pub fn preference() -> Self {
        Self::new(PREFERENCE)
    }

    fn at(&self, id: i32) -> CallResult<usize> {
        Ok(self.attributes.iter().position(|one| one.id == id).ok_or(Rule::LtAttribute)?)
    }

    fn with(mut self, id: i32, value: u64) -> Self {
        if let Ok(at) = self.at(id) {
            self.values[at] = value;
        }
        self
    }

    /// Sets an attribute. The value must have the attribute's size.
    pub fn set(&mut self, id: i32, value: &[u8]) -> CallResult {
        let at = self.at(id)?;
        let mut bytes = [0; 8];
        let attribute = &self.attributes[at];
        if value.len() != attribute.bytes {
            return Err(Rule::LtAttributeBytes.into());
        }
        bytes[..value.len()].copy_from_slice(value);
        let value = u64::from_le_bytes(bytes);
        if !(attribute.can_be)(value) {
            return Err(Rule::LtAttributeValue.into());
        }
        self.values[at] = value;
        Ok(())
    }

    /// Returns the value of an attribute.
    pub fn get(&self, id: i32) -> CallResult<u64> {
        Ok(self.values[self.at(id)?])
    }

    /// Returns the value of an attribute of 4 bytes.
    pub fn word(&self, id: i32) -> CallResult<i32> {
        Ok((self.get(id)? as u32).cast_signed())
    }
}
