//! Tests cuBLAS over libcuda, the transport and a device: the executor must receive what the program
//! requested.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUuuid;
use vgpu_abi::table::Table;
use vgpu_device::{
    DeviceConfig, Executor, ExecutorError, GpuConfig, Session, SessionError, SessionHost, SimBus, Work,
};
use vgpu_executor_null::Null;
use vgpu_libcublas as _;
use vgpu_libcuda as _;
use vgpu_wire::body::gemm::{GEMM_POINTERS, Gemm, TriangularSolve};
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{Body, Counters};

type Handle = *mut c_void;

unsafe extern "C" {
    fn cuGetExportTable(table: *mut *const c_void, uuid: *const CUuuid) -> CUresult;
    fn cuCtxGetCurrent(context: *mut usize) -> CUresult;
    fn cuCtxSynchronize() -> CUresult;
    fn cublasCreate_v2(handle: *mut Handle) -> u32;
    fn cublasDestroy_v2(handle: Handle) -> u32;
    fn cublasSetMathMode(handle: Handle, mode: c_int) -> u32;
    #[rustfmt::skip]
    fn cublasGemmStridedBatchedEx(
        handle: Handle,
        op_a: c_int,
        op_b: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const f32,
        a: usize,
        a_type: c_int,
        lda: c_int,
        stride_a: i64,
        b: usize,
        b_type: c_int,
        ldb: c_int,
        stride_b: i64,
        beta: *const f32,
        c: usize,
        c_type: c_int,
        ldc: c_int,
        stride_c: i64,
        batch: c_int,
        compute: c_int,
        algorithm: c_int,
    ) -> u32;
    #[rustfmt::skip]
    fn cublasStrsmBatched(
        handle: Handle,
        side: c_int,
        fill: c_int,
        operation: c_int,
        diagonal: c_int,
        m: c_int,
        n: c_int,
        alpha: *const f32,
        a: usize,
        lda: c_int,
        b: usize,
        ldb: c_int,
        batch: c_int,
    ) -> u32;
}

/// Messages that the executor received.
#[derive(Debug, Default)]
struct RecordedMessages {
    products: Vec<Gemm>,
    solves: Vec<TriangularSolve>,
}

/// An executor that computes nothing and records the messages that it is given.
struct Recorder {
    null: Null,
    seen: Arc<Mutex<RecordedMessages>>,
}

struct Recording {
    null: Box<dyn Session>,
    seen: Arc<Mutex<RecordedMessages>>,
}

impl Executor for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn facts(&self) -> DeviceFacts {
        self.null.facts()
    }

    fn allocated(&self) -> u64 {
        self.null.allocated()
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(Recording { null: self.null.open(host)?, seen: Arc::clone(&self.seen) }))
    }
}

impl Session for Recording {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if let Ok(mut seen) = self.seen.lock() {
            match work.message.body {
                Body::Gemm(product) => seen.products.push(product),
                Body::TriangularSolve(solve) => seen.solves.push(solve),
                _ => {}
            }
        }
        self.null.execute(work)
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        self.null.join(stream)
    }
}

fn messages(table: &Table) -> u64 {
    let mut counters = Counters::default();
    // SAFETY: an entry of the table, called with a place for its answer.
    assert_eq!(unsafe { (table.counters)(&raw mut counters) }, CUresult::SUCCESS);
    counters.messages
}

#[test]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "calls as a C program makes them: pointers are to locals"
)]
fn what_is_asked_for_arrives() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let gpu = GpuConfig { compute_capability: (8, 6), ..GpuConfig::new("cuBLAS test").expect("a GPU") };
    let seen = Arc::new(Mutex::new(RecordedMessages::default()));
    let recorder = Recorder { null: Null::new(&gpu).expect("an executor"), seen: Arc::clone(&seen) };
    let config = DeviceConfig::new("0000:00:05.0".parse().expect("an address"), Arc::new(recorder));
    let bus = SimBus::serve(folder.path(), vec![config]).expect("a bus");
    // SAFETY: the only test of this program; the bus's threads do not look at the environment.
    unsafe { std::env::set_var("VGPU_SYSFS", folder.path()) };

    // SAFETY: the libcuda that is linked in.
    let table = unsafe { Table::ask(cuGetExportTable) }.expect("the table of this build");
    let mut handle: Handle = ptr::null_mut();
    assert_eq!(unsafe { cublasCreate_v2(&raw mut handle) }, 0);
    let mut context = 0;
    assert_eq!(unsafe { cuCtxGetCurrent(&raw mut context) }, CUresult::SUCCESS);
    assert_ne!(context, 0, "the thread has a context");

    // The first message starts the session.
    assert_eq!(unsafe { (table.echo)(0) }, CUresult::SUCCESS);
    let before = messages(table);
    assert_eq!(unsafe { cublasSetMathMode(handle, 3) }, 0);
    assert_eq!(messages(table), before, "settings send nothing");
    let (alpha, beta) = (1.5f32, -0.5f32);
    let multiply = |m| unsafe {
        cublasGemmStridedBatchedEx(
            handle,
            1,
            0,
            m,
            33,
            64,
            &raw const alpha,
            0x1000,
            2,
            64,
            4096,
            0x2000,
            2,
            64,
            -2112,
            &raw const beta,
            0x3000,
            0,
            40,
            1 << 33,
            7,
            68,
            99,
        )
    };
    assert_eq!(multiply(32), 0);
    assert_eq!(messages(table), before + 1, "a product is one message");
    assert_eq!(multiply(-1), 7);
    assert_eq!(multiply(0), 0);
    assert_eq!(messages(table), before + 1, "what is refused, or nothing, is none");
    assert_eq!(
        unsafe { cublasStrsmBatched(handle, 0, 1, 0, 0, 16, 4, &raw const alpha, 0x5000, 16, 0x6000, 17, 3) },
        0
    );
    assert_eq!(messages(table), before + 2, "a solve is one message");

    // An echo is answered after every earlier message has been read.
    assert_eq!(unsafe { (table.echo)(0) }, CUresult::SUCCESS);
    assert_eq!(unsafe { cuCtxSynchronize() }, CUresult::SUCCESS);
    let seen = seen.lock().expect("what came");
    let [product] = seen.products[..] else { panic!("{:?}", seen.products) };
    assert_eq!((product.flags, product.operation, product.batch), (0, [1, 0], 7));
    assert_eq!((product.types, product.compute, product.scale), ([2, 2, 0], 68, 0));
    assert_eq!((product.size, product.leading), ([32, 33, 64], [64, 64, 40]));
    assert_eq!((product.stride, product.matrix), ([4096, -2112, 1 << 33], [0x1000, 0x2000, 0x3000]));
    assert_eq!((product.algorithm, product.math), (99, 3));
    assert_eq!(
        (&product.alpha[..4], &product.beta[..4]),
        (&alpha.to_le_bytes()[..], &beta.to_le_bytes()[..])
    );
    let [solve] = seen.solves[..] else { panic!("{:?}", seen.solves) };
    assert_eq!((solve.flags, solve.fill, solve.batch, solve.element), (GEMM_POINTERS, 1, 3, 0));
    assert_eq!((solve.size, solve.leading, solve.matrix), ([16, 4], [16, 17], [0x5000, 0x6000]));
    assert_eq!(solve.alpha[..4], alpha.to_le_bytes());
    drop(seen);

    assert_eq!(unsafe { cublasDestroy_v2(handle) }, 0);
    drop(bus);
}
