//! What a product of cuBLASLt's has to be, and which algorithm was advised for it.
//!
//! Written from the manual of cuBLAS, "Using the cuBLASLt API". Types that no product has are not supported,
//! which a program has to expect; sizes that contradict each other break a rule.

use vgpu_abi::CUresult;
use vgpu_abi::blas::{MatmulAlgo, arithmetic, data, element_bytes};

use crate::call::Call;
use crate::graph::NodeKind;
use crate::lt::{Lt, NO_TYPE, Record, layout, preference, product};
use crate::memory::Range;
use crate::products::{Matrix, WORKSPACE_ALIGNMENT};
use crate::raw::{Address, HostAddress};
use crate::rule::{Answer, Refusal, Rule};

/// First word of an algorithm of this library's.
const COOKIE: u64 = 0x0061_6c67_6f72_6563;
/// What an algorithm wants to work in, if it may.
const WORKSPACE_BYTES: u64 = 1 << 20;
/// `cublasLtPointerMode_t`: the scalars are in device memory.
const DEVICE_SCALARS: i32 = 1;
/// `cublasLtOrder_t`
const BY_COLUMNS: i32 = 0;
const BY_ROWS: i32 = 1;

const fn unsupported() -> Refusal {
    Refusal::Expected(CUresult::NOT_SUPPORTED)
}

/// A matrix as its layout has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    kind: i32,
    order: i32,
    /// Rows and columns.
    size: [u64; 2],
    leading: u64,
    batch: u64,
    stride: i64,
}

impl Shape {
    fn read(record: &Record) -> Answer<Self> {
        Ok(Self {
            kind: record.word(layout::TYPE)?,
            order: record.word(layout::ORDER)?,
            size: [record.get(layout::ROWS)?, record.get(layout::COLUMNS)?],
            leading: record.get(layout::LD)?,
            batch: record.get(layout::BATCH_COUNT)?,
            stride: record.get(layout::STRIDED_BATCH_OFFSET)?.cast_signed(),
        })
    }

    /// Elements that are adjacent, and how many such columns, or rows, there are.
    const fn lines(&self) -> [u64; 2] {
        let [rows, columns] = self.size;
        if self.order == BY_ROWS { [columns, rows] } else { [rows, columns] }
    }

    /// The matrix after an operation: rows and columns.
    const fn after(&self, operation: i32) -> [u64; 2] {
        let [rows, columns] = self.size;
        if operation == 0 { [rows, columns] } else { [columns, rows] }
    }

    /// `repeats`: of C, NVIDIA's library lets one line stand for all, by a leading dimension of 0.
    fn check(&self, repeats: bool) -> Answer {
        if !matches!(self.order, BY_COLUMNS | BY_ROWS) {
            return Err(unsupported());
        }
        let right = self.leading >= self.lines()[0].max(1) || repeats && self.leading == 0;
        if right && i64::try_from(self.leading).is_ok() { Ok(()) } else { Err(Rule::LtLeading.into()) }
    }

    /// The matrix at an address.
    fn at(&self, address: Address) -> Matrix {
        let [line, lines] = self.lines().map(u64::cast_signed);
        let (size, leading) = match self.leading {
            0 => ([line, lines.min(1)], line.max(1)),
            leading => ([line, lines], leading.cast_signed()),
        };
        Matrix { address, size, leading, stride: self.stride, kind: self.kind }
    }
}

/// A product, without its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Product {
    compute: i32,
    scale: i32,
    pointer_mode: i32,
    operation: [i32; 2],
    epilogue: u32,
    /// Of A, B, C and D.
    shapes: [Shape; 4],
}

impl Product {
    fn read(lt: &Lt, description: usize, layouts: [usize; 4]) -> Answer<Self> {
        let record = lt.products.get(description)?;
        let [a, b, c, d] = layouts;
        let shape = |layout| Shape::read(lt.layouts.get(layout)?);
        Ok(Self {
            compute: record.word(product::COMPUTE_TYPE)?,
            scale: record.word(product::SCALE_TYPE)?,
            pointer_mode: record.word(product::POINTER_MODE)?,
            operation: [record.word(product::TRANSA)?, record.word(product::TRANSB)?],
            epilogue: record.get(product::EPILOGUE)? as u32,
            shapes: [shape(a)?, shape(b)?, shape(c)?, shape(d)?],
        })
    }

    /// Checks what can be checked without operands.
    #[allow(clippy::many_single_char_names, reason = "the names of BLAS")]
    fn check(&self) -> Answer {
        let [a, b, c, d] = &self.shapes;
        for (shape, repeats) in [(a, false), (b, false), (c, true), (d, false)] {
            shape.check(repeats)?;
        }
        let ([m, k], [inner, n]) = (a.after(self.operation[0]), b.after(self.operation[1]));
        let batch = self.shapes.iter().all(|shape| shape.batch == d.batch);
        let of_d = |shape: &Shape| (shape.kind, shape.order, shape.size);
        if k != inner || d.size != [m, n] || of_d(c) != of_d(d) || !batch {
            return Err(Rule::LtConflict.into());
        }
        let found = arithmetic(self.compute, [a.kind, b.kind, d.kind], true).ok_or(unsupported())?;
        // Vectors of scalars are of no use to a program that has scalars.
        if found.scale != self.scale || self.pointer_mode > DEVICE_SCALARS {
            return Err(unsupported());
        }
        Ok(())
    }

    fn uses_bias(&self) -> bool {
        self.epilogue & 4 != 0 || self.bias_gradient()
    }

    /// Whether sums are stored where the bias is.
    fn bias_gradient(&self) -> bool {
        matches!(self.epilogue, 152 | 208 | 256 | 512)
    }

    const fn has_auxiliary(&self) -> bool {
        self.epilogue & 128 != 0
    }

    /// Whether the auxiliary matrix is ReLU's mask of bits.
    const fn masks(&self) -> bool {
        self.has_auxiliary() && self.epilogue & (2 | 8) != 0
    }
}

/// What an epilogue reads and writes besides the matrices.
#[derive(Clone, Copy, Debug)]
struct Extras {
    bias: Option<Matrix>,
    auxiliary: Option<Matrix>,
}

impl Extras {
    fn read(record: &Record, product: &Product) -> Answer<Self> {
        let d = &product.shapes[3];
        let kind_of =
            |id| -> Answer<i32> { Ok(if record.get(id)? == NO_TYPE { d.kind } else { record.word(id)? }) };
        let address_of = |id| record.get(id).map(Address);
        let signed = |id| record.get(id).map(u64::cast_signed);
        let [rows, columns] = d.size.map(u64::cast_signed);
        let bias = if product.uses_bias() {
            // Sums of B are as many as D has columns; everything else is one for each row.
            let length = if product.epilogue == 512 { columns } else { rows };
            Some(Matrix {
                address: address_of(product::BIAS_POINTER)?,
                size: [length, 1],
                leading: length.max(1),
                stride: signed(product::BIAS_BATCH_STRIDE)?,
                kind: kind_of(product::BIAS_DATA_TYPE)?,
            })
        } else {
            None
        };
        let auxiliary = if product.has_auxiliary() {
            let (leading, stride) = (signed(product::AUX_LD)?, signed(product::AUX_BATCH_STRIDE)?);
            let multiple = if product.masks() { 128 } else { 8 };
            if leading < rows.max(1) || leading % multiple != 0 || stride % multiple != 0 {
                return Err(Rule::LtAuxiliary.into());
            }
            let address = address_of(product::AUX_POINTER)?;
            Some(if product.masks() {
                // Eight elements are a byte.
                let (size, kind) = ([(rows + 7) / 8, columns], data::R_8U);
                Matrix { address, size, leading: leading / 8, stride: stride / 8, kind }
            } else {
                let (size, kind) = ([rows, columns], kind_of(product::AUX_DATA_TYPE)?);
                Matrix { address, size, leading, stride, kind }
            })
        } else {
            None
        };
        Ok(Self { bias, auxiliary })
    }
}

/// An algorithm that was given out.
#[derive(Debug)]
pub struct Advice {
    product: Product,
    /// To how many bytes A, B, C and D have to be aligned.
    alignments: [u64; 4],
    /// Bytes of the workspace that it needs.
    workspace: u64,
}

/// The operands of a product.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// Alpha and beta.
    pub scalars: [HostAddress; 2],
    /// A, B, C and D.
    pub matrices: [Address; 4],
    /// Memory to work in.
    pub workspace: Range,
    /// A stream's handle.
    pub stream: usize,
}

impl Call {
    /// `cublasLtMatmulAlgoGetHeuristic`: an algorithm, and the bytes that it needs to work in.
    pub fn lt_advise(
        &mut self,
        handle: usize,
        description: usize,
        layouts: [usize; 4],
        limits: usize,
    ) -> Answer<(MatmulAlgo, u64)> {
        self.blas(handle)?;
        let product = Product::read(&self.lt, description, layouts)?;
        product.check()?;
        Extras::read(self.lt.products.get(description)?, &product)?;
        let limits = self.lt.preferences.get(limits)?;
        let workspace = limits.get(preference::MAX_WORKSPACE_BYTES)?.min(WORKSPACE_BYTES);
        let [a, b, c, d] = preference::MIN_ALIGNMENT_BYTES.map(|id| limits.get(id));
        let alignments = [a?, b?, c?, d?];
        self.lt.advised.push(Advice { product, alignments, workspace });
        let mut algorithm = MatmulAlgo::default();
        algorithm.data[..2].copy_from_slice(&[COOKIE, self.lt.advised.len() as u64]);
        Ok((algorithm, workspace))
    }

    /// `cublasLtMatmul`. Without an algorithm the library asks itself, and wants no workspace.
    pub fn lt_multiply(
        &mut self,
        handle: usize,
        description: usize,
        layouts: [usize; 4],
        algorithm: Option<MatmulAlgo>,
        operands: Operands,
    ) -> Answer {
        let context = self.blas(handle)?.context;
        let lane = self.streams.lane(context, operands.stream)?;
        let product = Product::read(&self.lt, description, layouts)?;
        product.check()?;
        let extras = Extras::read(self.lt.products.get(description)?, &product)?;
        let Operands { matrices, workspace, .. } = operands;
        if let Some(algorithm) = algorithm {
            self.lt_check_algorithm(&product, algorithm, matrices, workspace)?;
        }
        if workspace.bytes > 0 && !workspace.start.is_multiple_of(WORKSPACE_ALIGNMENT) {
            return Err(Rule::BlasWorkspace.into());
        }
        let [.., c, d] = matrices;
        if c == d && product.shapes[2] != product.shapes[3] {
            return Err(Rule::LtInPlace.into());
        }
        let mut ranges = vec![workspace];
        self.device_range(workspace, true)?;
        self.lt_scalars(&product, operands.scalars)?;
        for (at, (shape, address)) in product.shapes.iter().zip(matrices).enumerate() {
            let batch = shape.batch.cast_signed();
            ranges.push(self.blas_matrix(shape.at(address), batch, at == 3)?);
        }
        for (extra, rule, write) in [
            (extras.bias, Rule::LtBias, product.bias_gradient()),
            (extras.auxiliary, Rule::LtAuxiliary, !matches!(product.epilogue, 136 | 152 | 192 | 208)),
        ] {
            let Some(matrix) = extra else { continue };
            if matrix.address.0 == 0 {
                return Err(rule.into());
            }
            let batch = product.shapes[3].batch.cast_signed();
            ranges.push(self.blas_matrix(matrix, batch, write)?);
        }
        ranges.retain(|range| range.bytes > 0);
        self.submit(lane, NodeKind::Product { ranges })
    }

    /// An algorithm is one that was advised for this product, and has what it was promised.
    fn lt_check_algorithm(
        &self,
        product: &Product,
        algorithm: MatmulAlgo,
        matrices: [Address; 4],
        workspace: Range,
    ) -> Answer {
        let [cookie, number, ..] = algorithm.data;
        let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let advice = at.and_then(|at| self.lt.advised.get(at)).filter(|_| cookie == COOKIE);
        let advice = advice.filter(|advice| advice.product == *product).ok_or(Rule::LtAlgorithm)?;
        if !matrices.iter().zip(advice.alignments).all(|(address, bytes)| address.0.is_multiple_of(bytes)) {
            return Err(Rule::LtAlignment.into());
        }
        let room = if workspace.start == 0 { 0 } else { workspace.bytes };
        if room < advice.workspace { Err(Rule::LtWorkspace.into()) } else { Ok(()) }
    }

    /// Alpha and beta, where the pointer mode says.
    fn lt_scalars(&self, product: &Product, scalars: [HostAddress; 2]) -> Answer {
        let bytes = element_bytes(product.scale).ok_or(unsupported())?;
        for place in scalars {
            if place.number() == 0 {
                return Err(Rule::NullArgument.into());
            }
            if product.pointer_mode == DEVICE_SCALARS {
                self.device_range(Range::new(place.number(), bytes), false)?;
            }
        }
        Ok(())
    }
}
