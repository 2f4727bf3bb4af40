//! Tests of cuBLASLt: one case for each of its rules, and products that break none.

use std::ffi::c_int;
use std::ptr;

use serde_json::json;
use vgpu_abi::blas::{BlasStatus, MatmulAlgo, MatmulHeuristicResult};
use vgpu_abi::driver::CUstream;
use vgpu_recording_cuda::Rule;

use crate::bench::RecordingBench;
use crate::refusals::{RuleCase, set_access, usual};

const F32: c_int = 0;
const COMPUTE_F32: c_int = 68;
/// Numbers of the attributes of a product.
const TRANSA: c_int = 3;
const EPILOGUE: c_int = 7;
const BIAS: c_int = 8;
const AUX_LD: c_int = 12;
/// Numbers of the attributes of a matrix.
const ORDER: c_int = 1;
const LEADING: c_int = 4;
const BATCH: c_int = 5;
/// Numbers of the attributes of a preference.
const MAX_WORKSPACE: c_int = 1;
const ALIGNMENT_A: c_int = 5;
const WORKSPACE: u64 = 1 << 20;

/// Calls a function of cuBLASLt by its name and the types of its arguments, and evaluates to its status.
macro_rules! lt {
    ($b:expr, $name:ident($($arg:expr => $ty:ty),* $(,)?)) => {{
        type LtFunction = unsafe extern "C" fn($($ty),*) -> u32;
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: the signature is that of the function in cuBLASLt's header.
        let function = *unsafe { $b.library().get::<LtFunction>(name) }.expect(stringify!($name));
        // SAFETY: result addresses are live variables; addresses of device memory are not dereferenced.
        unsafe { function($($arg),*) }
    }};
}

/// A product of 16 by 16 matrices of single precision, with all its operands and descriptors.
pub struct TestProduct<'a> {
    b: &'a RecordingBench,
    handle: usize,
    description: usize,
    /// Layout descriptors of A, B, C and D.
    layouts: [usize; 4],
    matrices: [u64; 4],
    limits: usize,
    workspace: (u64, usize),
    stream: CUstream,
}

fn layout(b: &RecordingBench, rows: u64, columns: u64, leading: i64) -> usize {
    let mut made = 0;
    let create = lt!(b, cublasLtMatrixLayoutCreate(
        &raw mut made => *mut usize, F32 => c_int, rows => u64, columns => u64, leading => i64,
    ));
    assert_eq!(create, 0);
    made
}

impl<'a> TestProduct<'a> {
    pub fn new(b: &'a RecordingBench) -> Self {
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

    /// Returns the algorithm that is advised for the product in its present form.
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

    /// Carries out the product with the advised algorithm and returns the status.
    fn go(&self) -> u32 {
        let algorithm = self.algorithm();
        self.multiply(&raw const algorithm)
    }
}

/// A rule, and a function that breaks it with a call on a product and returns the call's status.
pub type ProductCase = (Rule, fn(&mut TestProduct<'_>) -> u32);

/// Sets attributes of a product and requests an algorithm. Returns the status.
fn advise_with(product: &TestProduct<'_>, attributes: &[(c_int, &[u8])]) -> u32 {
    for (attribute, value) in attributes {
        assert_eq!(product.set(*attribute, value), 0);
    }
    product.advise().0
}

/// One case for each rule of cuBLASLt. cuBLASLt returns an invalid value for all of them.
pub const CASES: &[ProductCase] = &[
    // The descriptor of a matrix is not that of a product.
    (Rule::LtUnknown, |product| {
        product.description = product.layouts[0];
        product.set(TRANSA, &[0; 4])
    }),
    (Rule::LtDestroyed, |product| {
        assert_eq!(lt!(product.b, cublasLtMatmulDescDestroy(product.description => usize)), 0);
        product.advise().0
    }),
    (Rule::LtDestroyed, |product| {
        let algorithm = product.algorithm();
        assert_eq!(lt!(product.b, cublasLtMatrixLayoutDestroy(product.layouts[1] => usize)), 0);
        product.multiply(&raw const algorithm)
    }),
    (Rule::LtDestroyed, |product| {
        let destroy = || lt!(product.b, cublasLtMatmulPreferenceDestroy(product.limits => usize));
        assert_eq!(destroy(), 0);
        destroy()
    }),
    (Rule::LtAttribute, |product| product.set(9, &[0; 4])),
    // The operation has 32 bits. A pointer and the limit of the workspace have 64.
    (Rule::LtAttributeBytes, |product| product.set(TRANSA, &[0; 8])),
    (Rule::LtAttributeBytes, |product| product.set(BIAS, &[0; 4])),
    (Rule::LtAttributeBytes, |product| product.limit(MAX_WORKSPACE, &[0; 4])),
    (Rule::LtAttributeBytes, |product| product.lay(0, BATCH, &[1, 0, 0, 0, 0, 0, 0, 0])),
    (Rule::NullArgument, |product| {
        lt!(product.b, cublasLtMatmulDescSetAttribute(
            product.description => usize, TRANSA => c_int, ptr::null() => *const u8, 4 => usize,
        ))
    }),
    (Rule::LtAttributeValue, |product| product.set(EPILOGUE, &3_u32.to_le_bytes())),
    (Rule::LtAttributeValue, |product| product.limit(ALIGNMENT_A, &24_u32.to_le_bytes())),
    // A is 16 by 8, so its k differs from that of B.
    (Rule::LtConflict, |product| {
        product.layouts[0] = layout(product.b, 16, 8, 16);
        product.advise().0
    }),
    // D has two matrices, and all others have one.
    (Rule::LtConflict, |product| {
        assert_eq!(product.lay(3, BATCH, &2_u32.to_le_bytes()), 0);
        product.advise().0
    }),
    // C is stored by rows, and D by columns.
    (Rule::LtConflict, |product| {
        assert_eq!(product.lay(2, ORDER, &1_u32.to_le_bytes()), 0);
        product.advise().0
    }),
    (Rule::LtLeading, |product| {
        assert_eq!(product.lay(0, LEADING, &15_u64.to_le_bytes()), 0);
        product.advise().0
    }),
    // By rows, the leading dimension counts columns.
    (Rule::LtLeading, |product| {
        product.layouts[0] = layout(product.b, 8, 16, 8);
        assert_eq!(product.lay(0, ORDER, &1_u32.to_le_bytes()), 0);
        product.advise().0
    }),
    (Rule::LtInPlace, |product| {
        assert_eq!(product.lay(2, LEADING, &32_u64.to_le_bytes()), 0);
        product.go()
    }),
    (Rule::LtBias, |product| {
        assert_eq!(product.set(EPILOGUE, &4_u32.to_le_bytes()), 0);
        product.go()
    }),
    // The mask's leading dimension must be a multiple of 128.
    (Rule::LtAuxiliary, |product| {
        advise_with(product, &[(EPILOGUE, &130_u32.to_le_bytes()), (AUX_LD, &64_u64.to_le_bytes())])
    }),
    // The auxiliary matrix has no address.
    (Rule::LtAuxiliary, |product| {
        let attributes: &[(c_int, &[u8])] =
            &[(EPILOGUE, &130_u32.to_le_bytes()), (AUX_LD, &128_u64.to_le_bytes())];
        assert_eq!(advise_with(product, attributes), 0);
        product.go()
    }),
    // The library did not return this algorithm.
    (Rule::LtAlgorithm, |product| product.multiply(&raw const NOBODYS)),
    // The algorithm is one for another product.
    (Rule::LtAlgorithm, |product| {
        let algorithm = product.algorithm();
        assert_eq!(product.set(TRANSA, &1_u32.to_le_bytes()), 0);
        product.multiply(&raw const algorithm)
    }),
    (Rule::LtAlignment, |product| {
        product.matrices[1] += 128;
        product.go()
    }),
    (Rule::LtWorkspace, |product| {
        product.workspace.1 = 4096;
        product.go()
    }),
    (Rule::LtWorkspace, |product| {
        product.workspace.0 = 0;
        product.go()
    }),
    (Rule::BlasWorkspace, |product| {
        product.workspace.0 = product.b.memory(2 * WORKSPACE as usize) + 128;
        product.go()
    }),
    // The address is in host memory.
    (Rule::OutOfRange, |product| {
        product.workspace.0 = 0x10_0000_0000;
        product.go()
    }),
    (Rule::Freed, |product| {
        assert_eq!(cu!(product.b, cuMemFree_v2(product.workspace.0)), 0);
        product.go()
    }),
    // A exceeds its memory.
    (Rule::OutOfRange, |product| {
        product.matrices[0] += 3584;
        product.go()
    }),
];

/// Cases with other statuses: a destroyed stream, for which cuBLASLt has a status of its own, and operands
/// and a workspace that must stay mapped while a product is not complete.
pub const OTHERS: &[RuleCase] = &[
    (Rule::DestroyedHandle, usual, |b| {
        let mut product = TestProduct::new(b);
        product.stream = b.stream(1);
        assert_eq!(cu!(b, cuStreamDestroy_v2(product.stream)), 0);
        assert_eq!(product.go(), BlasStatus::NOT_INITIALIZED.0);
        Rule::DestroyedHandle.status().0
    }),
    (Rule::MappingInUse, usual, |b| {
        let mut product = TestProduct::new(b);
        product.workspace.0 = b.mapped();
        assert_eq!(set_access(b, product.workspace.0, 2 << 20), 0);
        b.hold();
        assert_eq!(product.go(), 0);
        cu!(b, cuMemUnmap(product.workspace.0, 2 << 20))
    }),
];

static NOBODYS: MatmulAlgo = MatmulAlgo { data: [1; 8] };

/// Correct products are not refused: matrices by columns and by rows, in place, in a batch, with an epilogue
/// that has a bias and a mask, and without an algorithm.
#[test]
fn products_that_are_right_are_refused_nothing() {
    let b = RecordingBench::new();
    let product = TestProduct::new(&b);
    assert_eq!(product.go(), 0);
    assert_eq!(product.multiply(ptr::null()), 0);
    let more = b.memory(1 << 20);
    assert_eq!(product.set(EPILOGUE, &134_u32.to_le_bytes()), 0);
    for (attribute, value) in [(BIAS, more), (11, more + 4096), (AUX_LD, 128)] {
        assert_eq!(product.set(attribute, &value.to_le_bytes()), 0);
    }
    assert_eq!(product.go(), 0);
    // One column of C is used for all columns.
    let apart = TestProduct { matrices: [more, more + 1024, more + 2048, more + 4096], ..product };
    assert_eq!(apart.lay(2, LEADING, &0_u64.to_le_bytes()), 0);
    assert_eq!(apart.go(), 0);
    assert_eq!(b.line("cublasLtMatmul")["args"]["algorithm"], serde_json::Value::Null);
    assert_eq!(b.line("cublasLtMatmulDescSetAttribute")["args"]["value"], json!(128));
    let refused: Vec<_> = b.lines().into_iter().filter(|line| !line["refused"].is_null()).collect();
    assert!(refused.is_empty(), "{refused:?}");
}
