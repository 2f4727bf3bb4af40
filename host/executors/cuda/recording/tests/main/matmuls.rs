//! cuBLASLt: one case for each of its rules, and products that are right.

use std::ffi::c_int;
use std::ptr;

use serde_json::json;
use vgpu_abi::blas::{BlasStatus, MatmulAlgo, MatmulHeuristicResult};
use vgpu_abi::driver::CUstream;
use vgpu_recording_cuda::Rule;

use crate::bench::Bench;
use crate::refusals::{Case, set_access, usual};

const F32: c_int = 0;
const COMPUTE_F32: c_int = 68;
/// Attributes of a product.
const TRANSA: c_int = 3;
const EPILOGUE: c_int = 7;
const BIAS: c_int = 8;
const AUX_LD: c_int = 12;
/// Attributes of a matrix.
const ORDER: c_int = 1;
const LEADING: c_int = 4;
const BATCH: c_int = 5;
/// Attributes of a preference.
const MAX_WORKSPACE: c_int = 1;
const ALIGNMENT_A: c_int = 5;
const WORKSPACE: u64 = 1 << 20;

/// Calls a function of cuBLASLt by its name and the types of its arguments; its status.
macro_rules! lt {
    ($b:expr, $name:ident($($arg:expr => $ty:ty),* $(,)?)) => {{
        type Function = unsafe extern "C" fn($($ty),*) -> u32;
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: the signature is that of the function in cuBLASLt's header.
        let function = *unsafe { $b.library().get::<Function>(name) }.expect(stringify!($name));
        // SAFETY: places for answers are live; addresses of device memory are not followed.
        unsafe { function($($arg),*) }
    }};
}

/// A product of 16 by 16 matrices of single precision, with everything that it takes.
struct Product<'a> {
    b: &'a Bench,
    handle: usize,
    description: usize,
    /// Of A, B, C and D.
    layouts: [usize; 4],
    matrices: [u64; 4],
    limits: usize,
    workspace: (u64, usize),
    stream: CUstream,
}

fn layout(b: &Bench, rows: u64, columns: u64, leading: i64) -> usize {
    let mut made = 0;
    let create = lt!(b, cublasLtMatrixLayoutCreate(
        &raw mut made => *mut usize, F32 => c_int, rows => u64, columns => u64, leading => i64,
    ));
    assert_eq!(create, 0);
    made
}

impl<'a> Product<'a> {
    fn new(b: &'a Bench) -> Self {
        let (mut description, mut limits) = (0, 0);
        let types = (COMPUTE_F32, F32);
        let create = lt!(b, cublasLtMatmulDescCreate(
            &raw mut description => *mut usize, types.0 => c_int, types.1 => c_int,
        ));
        assert_eq!(create, 0);
        assert_eq!(lt!(b, cublasLtMatmulPreferenceCreate(&raw mut limits => *mut usize)), 0);
        let memory = b.memory(4096);
        let product = Self {
            b,
            handle: b.blas(),
            description,
            layouts: [0; 4].map(|_: u8| layout(b, 16, 16, 16)),
            matrices: [memory, memory + 1024, memory + 2048, memory + 2048],
            limits,
            workspace: (b.memory(WORKSPACE as usize), WORKSPACE as usize),
            stream: CUstream::NULL,
        };
        assert_eq!(product.limit(MAX_WORKSPACE, &WORKSPACE.to_le_bytes()), 0);
        product
    }

    fn set(&self, attribute: c_int, value: &[u8]) -> u32 {
        lt!(self.b, cublasLtMatmulDescSetAttribute(
            self.description => usize, attribute => c_int, value.as_ptr() => *const u8, value.len() => usize,
        ))
    }

    fn limit(&self, attribute: c_int, value: &[u8]) -> u32 {
        lt!(self.b, cublasLtMatmulPreferenceSetAttribute(
            self.limits => usize, attribute => c_int, value.as_ptr() => *const u8, value.len() => usize,
        ))
    }

    fn lay(&self, matrix: usize, attribute: c_int, value: &[u8]) -> u32 {
        lt!(self.b, cublasLtMatrixLayoutSetAttribute(
            self.layouts[matrix] => usize, attribute => c_int, value.as_ptr() => *const u8,
            value.len() => usize,
        ))
    }

    fn advise(&self) -> (u32, MatmulHeuristicResult) {
        let (state, mut count) = (BlasStatus::NOT_SUPPORTED, 0);
        let mut result = MatmulHeuristicResult {
            algo: MatmulAlgo::default(),
            workspace_bytes: 0,
            state,
            waves: 0.0,
            reserved: [0; 4],
        };
        let [a, b, c, d] = self.layouts;
        let status = lt!(self.b, cublasLtMatmulAlgoGetHeuristic(
            self.handle => usize, self.description => usize, a => usize, b => usize, c => usize, d => usize,
            self.limits => usize, 1 => c_int, &raw mut result => *mut MatmulHeuristicResult,
            &raw mut count => *mut c_int,
        ));
        assert_eq!(count, c_int::from(status == 0));
        (status, result)
    }

    /// The algorithm for the product as it is.
    fn algorithm(&self) -> MatmulAlgo {
        let (status, result) = self.advise();
        assert_eq!(
            (status, result.state, result.workspace_bytes as u64),
            (0, BlasStatus::SUCCESS, WORKSPACE)
        );
        result.algo
    }

    fn multiply(&self, algorithm: *const MatmulAlgo) -> u32 {
        let (scalar, [a, b, c, d], [of_a, of_b, of_c, of_d]) = (1_f32, self.matrices, self.layouts);
        lt!(self.b, cublasLtMatmul(
            self.handle => usize, self.description => usize, &raw const scalar => *const f32, a => u64,
            of_a => usize, b => u64, of_b => usize, &raw const scalar => *const f32, c => u64, of_c => usize,
            d => u64, of_d => usize, algorithm => *const MatmulAlgo, self.workspace.0 => u64,
            self.workspace.1 => usize, self.stream => CUstream,
        ))
    }

    /// Multiplies by the algorithm that is advised.
    fn go(&self) -> u32 {
        let algorithm = self.algorithm();
        self.multiply(&raw const algorithm)
    }
}

/// What cuBLAS answers for a rule; the status that the record compares is that of the rule.
fn refused(rule: Rule, status: u32) -> u32 {
    assert_eq!(status, BlasStatus::INVALID_VALUE.0, "{rule:?}");
    rule.status().0
}

/// One case for each rule of cuBLASLt's.
pub const CASES: &[Case] = &[
    // A matrix's description is not a product's.
    (Rule::LtUnknown, usual, |b| {
        let product = Product::new(b);
        let wrong = Product { description: product.layouts[0], ..product };
        refused(Rule::LtUnknown, wrong.set(TRANSA, &[0; 4]))
    }),
    (Rule::LtDestroyed, usual, |b| {
        let product = Product::new(b);
        assert_eq!(lt!(b, cublasLtMatmulDescDestroy(product.description => usize)), 0);
        refused(Rule::LtDestroyed, product.advise().0)
    }),
    (Rule::LtDestroyed, usual, |b| {
        let product = Product::new(b);
        let algorithm = product.algorithm();
        assert_eq!(lt!(b, cublasLtMatrixLayoutDestroy(product.layouts[1] => usize)), 0);
        refused(Rule::LtDestroyed, product.multiply(&raw const algorithm))
    }),
    (Rule::LtDestroyed, usual, |b| {
        let product = Product::new(b);
        let destroy = || lt!(b, cublasLtMatmulPreferenceDestroy(product.limits => usize));
        assert_eq!(destroy(), 0);
        refused(Rule::LtDestroyed, destroy())
    }),
    (Rule::LtAttribute, usual, |b| refused(Rule::LtAttribute, Product::new(b).set(9, &[0; 4]))),
    // The operation has 32 bits; a pointer has 64; so has the bound of the workspace.
    (Rule::LtAttributeBytes, usual, |b| {
        refused(Rule::LtAttributeBytes, Product::new(b).set(TRANSA, &[0; 8]))
    }),
    (Rule::LtAttributeBytes, usual, |b| refused(Rule::LtAttributeBytes, Product::new(b).set(BIAS, &[0; 4]))),
    (Rule::LtAttributeBytes, usual, |b| {
        refused(Rule::LtAttributeBytes, Product::new(b).limit(MAX_WORKSPACE, &[0; 4]))
    }),
    (Rule::LtAttributeBytes, usual, |b| {
        refused(Rule::LtAttributeBytes, Product::new(b).lay(0, BATCH, &[1, 0, 0, 0, 0, 0, 0, 0]))
    }),
    (Rule::NullArgument, usual, |b| {
        let product = Product::new(b);
        let set = lt!(b, cublasLtMatmulDescSetAttribute(
            product.description => usize, TRANSA => c_int, ptr::null() => *const u8, 4 => usize,
        ));
        refused(Rule::NullArgument, set)
    }),
    (Rule::LtAttributeValue, usual, |b| {
        refused(Rule::LtAttributeValue, Product::new(b).set(EPILOGUE, &3_u32.to_le_bytes()))
    }),
    (Rule::LtAttributeValue, usual, |b| {
        refused(Rule::LtAttributeValue, Product::new(b).limit(ALIGNMENT_A, &24_u32.to_le_bytes()))
    }),
    // A of 16 by 8 has another k than B.
    (Rule::LtConflict, usual, |b| {
        let mut product = Product::new(b);
        product.layouts[0] = layout(b, 16, 8, 16);
        refused(Rule::LtConflict, product.advise().0)
    }),
    // D of two matrices, and everything else of one.
    (Rule::LtConflict, usual, |b| {
        let product = Product::new(b);
        assert_eq!(product.lay(3, BATCH, &2_u32.to_le_bytes()), 0);
        refused(Rule::LtConflict, product.advise().0)
    }),
    // C by rows, and D by columns.
    (Rule::LtConflict, usual, |b| {
        let product = Product::new(b);
        assert_eq!(product.lay(2, ORDER, &1_u32.to_le_bytes()), 0);
        refused(Rule::LtConflict, product.advise().0)
    }),
    (Rule::LtLeading, usual, |b| {
        let product = Product::new(b);
        assert_eq!(product.lay(0, LEADING, &15_u64.to_le_bytes()), 0);
        refused(Rule::LtLeading, product.advise().0)
    }),
    // By rows it is the columns that count.
    (Rule::LtLeading, usual, |b| {
        let mut product = Product::new(b);
        product.layouts[0] = layout(b, 8, 16, 8);
        assert_eq!(product.lay(0, ORDER, &1_u32.to_le_bytes()), 0);
        refused(Rule::LtLeading, product.advise().0)
    }),
    (Rule::LtInPlace, usual, |b| {
        let product = Product::new(b);
        assert_eq!(product.lay(2, LEADING, &32_u64.to_le_bytes()), 0);
        refused(Rule::LtInPlace, product.go())
    }),
    (Rule::LtBias, usual, |b| {
        let product = Product::new(b);
        assert_eq!(product.set(EPILOGUE, &4_u32.to_le_bytes()), 0);
        refused(Rule::LtBias, product.go())
    }),
    // The mask's leading dimension is a multiple of 128.
    (Rule::LtAuxiliary, usual, |b| {
        let product = Product::new(b);
        assert_eq!(product.set(EPILOGUE, &130_u32.to_le_bytes()), 0);
        assert_eq!(product.set(AUX_LD, &64_u64.to_le_bytes()), 0);
        refused(Rule::LtAuxiliary, product.advise().0)
    }),
    // It has no address.
    (Rule::LtAuxiliary, usual, |b| {
        let product = Product::new(b);
        assert_eq!(product.set(EPILOGUE, &130_u32.to_le_bytes()), 0);
        assert_eq!(product.set(AUX_LD, &128_u64.to_le_bytes()), 0);
        refused(Rule::LtAuxiliary, product.go())
    }),
    // Nobody gave it.
    (Rule::LtAlgorithm, usual, |b| refused(Rule::LtAlgorithm, Product::new(b).multiply(&raw const NOBODYS))),
    // It was for another product.
    (Rule::LtAlgorithm, usual, |b| {
        let product = Product::new(b);
        let algorithm = product.algorithm();
        assert_eq!(product.set(TRANSA, &1_u32.to_le_bytes()), 0);
        refused(Rule::LtAlgorithm, product.multiply(&raw const algorithm))
    }),
    (Rule::LtAlignment, usual, |b| {
        let mut product = Product::new(b);
        product.matrices[1] += 128;
        refused(Rule::LtAlignment, product.go())
    }),
    (Rule::LtWorkspace, usual, |b| {
        let mut product = Product::new(b);
        product.workspace.1 = 4096;
        refused(Rule::LtWorkspace, product.go())
    }),
    (Rule::LtWorkspace, usual, |b| {
        let mut product = Product::new(b);
        product.workspace.0 = 0;
        refused(Rule::LtWorkspace, product.go())
    }),
    (Rule::BlasWorkspace, usual, |b| {
        let mut product = Product::new(b);
        product.workspace.0 = b.memory(2 * WORKSPACE as usize) + 128;
        refused(Rule::BlasWorkspace, product.go())
    }),
    // It is memory of the host.
    (Rule::OutOfRange, usual, |b| {
        let mut product = Product::new(b);
        product.workspace.0 = 0x10_0000_0000;
        refused(Rule::OutOfRange, product.go())
    }),
    (Rule::Freed, usual, |b| {
        let product = Product::new(b);
        assert_eq!(cu!(b, cuMemFree_v2(product.workspace.0)), 0);
        refused(Rule::Freed, product.go())
    }),
    // A sticks out of its memory.
    (Rule::OutOfRange, usual, |b| {
        let mut product = Product::new(b);
        product.matrices[0] += 3584;
        refused(Rule::OutOfRange, product.go())
    }),
    (Rule::DestroyedHandle, usual, |b| {
        let mut product = Product::new(b);
        product.stream = b.stream(1);
        assert_eq!(cu!(b, cuStreamDestroy_v2(product.stream)), 0);
        assert_eq!(product.go(), BlasStatus::NOT_INITIALIZED.0);
        Rule::DestroyedHandle.status().0
    }),
    // Operands and workspace of a product that is not complete stay mapped.
    (
        Rule::MappingInUse,
        || json!({}),
        |b| {
            let mut product = Product::new(b);
            product.workspace.0 = b.mapped();
            assert_eq!(set_access(b, product.workspace.0, 2 << 20), 0);
            b.hold();
            assert_eq!(product.go(), 0);
            cu!(b, cuMemUnmap(product.workspace.0, 2 << 20))
        },
    ),
];

static NOBODYS: MatmulAlgo = MatmulAlgo { data: [1; 8] };

/// Matrices by columns and by rows, one after the other, in a batch, with an epilogue that has a bias and a
/// mask; and without an algorithm.
#[test]
fn products_that_are_right_are_refused_nothing() {
    let b = Bench::new();
    let product = Product::new(&b);
    assert_eq!(product.go(), 0);
    assert_eq!(product.multiply(ptr::null()), 0);
    let more = b.memory(1 << 20);
    assert_eq!(product.set(EPILOGUE, &134_u32.to_le_bytes()), 0);
    for (attribute, value) in [(BIAS, more), (11, more + 4096), (AUX_LD, 128)] {
        assert_eq!(product.set(attribute, &value.to_le_bytes()), 0);
    }
    assert_eq!(product.go(), 0);
    // One column of C stands for all.
    let apart = Product { matrices: [more, more + 1024, more + 2048, more + 4096], ..product };
    assert_eq!(apart.lay(2, LEADING, &0_u64.to_le_bytes()), 0);
    assert_eq!(apart.go(), 0);
    assert_eq!(b.line("cublasLtMatmul")["args"]["algorithm"], serde_json::Value::Null);
    assert_eq!(b.line("cublasLtMatmulDescSetAttribute")["args"]["value"], json!(128));
    let refused: Vec<_> = b.lines().into_iter().filter(|line| !line["refused"].is_null()).collect();
    assert!(refused.is_empty(), "{refused:?}");
}
