//! Exports the private table by which the other shims of this project access the device. NVIDIA's own private
//! tables do not exist here.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use vgpu_abi::driver::{CUstream, CUuuid};
use vgpu_abi::export::guard;
use vgpu_abi::table::{Device, Table, UUID, VERSION};
use vgpu_abi::{CUresult, log};
use vgpu_wire::Counters;
use vgpu_wire::body::gemm::{Gemm, TriangularSolve};
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::session::Echo;
use vgpu_wire::body::vector::VectorOp;
use vgpu_wire::facts::exec;

use crate::Result;
use crate::arg::{In, Out};
use crate::object::default_stream::find;
use crate::object::gpu::Gpu;
use crate::object::{current, lifecycle};
use crate::ptsz::DefaultStream;
use crate::submit::{stream, vector};
use crate::sync::Mutex;
use crate::visible::uuid_text;

/// Maximum number of unknown tables that the log names. Programs ask for a few dozen.
const TOLD_MOST: usize = 64;

/// Id of the table that NVRTC asks for, which it can compile without. NVRTC of CUDA 12.9 and 13 has this id
/// among its constants. A CUDA runtime, linked statically or not, and cuBLAS do not have it.
const NVRTC: CUuuid =
    [0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28];

/// Converts the result of a call, or its panic, into a status.
fn answer(name: &'static str, call: impl FnOnce() -> Result) -> CUresult {
    match guard(name, call) {
        Some(Ok(())) => CUresult::SUCCESS,
        Some(Err(error)) => error,
        None => CUresult::UNKNOWN,
    }
}

fn gpu(index: c_int) -> Result<&'static Gpu> {
    let index = usize::try_from(index).map_err(|_| CUresult::INVALID_DEVICE)?;
    lifecycle::attached()?.gpu(index)
}

unsafe extern "C" fn alive() -> CUresult {
    answer("life", lifecycle::status)
}

unsafe extern "C" fn device_count(count: *mut c_int) -> CUresult {
    // SAFETY: the table's caller promised a place for the result.
    let out = unsafe { Out::new(count) };
    answer("device_count", || {
        let out = out.check()?;
        out.set(c_int::try_from(lifecycle::attached()?.count()).unwrap_or(c_int::MAX))
    })
}

unsafe extern "C" fn device(index: c_int, device: *mut *const Device) -> CUresult {
    // SAFETY: as above.
    let out = unsafe { Out::new(device) };
    answer("device", || out.check()?.set(&raw const gpu(index)?.shown))
}

unsafe extern "C" fn visible(ordinal: c_int, index: *mut c_int) -> CUresult {
    // SAFETY: as above.
    let out = unsafe { Out::new(index) };
    answer("visible", || {
        let out = out.check()?;
        lifecycle::initialise()?;
        out.set(c_int::try_from(lifecycle::device(ordinal)?.index).unwrap_or(c_int::MAX))
    })
}

unsafe extern "C" fn memory_info(index: c_int, free: *mut u64, total: *mut u64) -> CUresult {
    // SAFETY: as above.
    let free = unsafe { Out::new(free) };
    // SAFETY: as above.
    let total = unsafe { Out::new(total) };
    answer("memory_info", || {
        let (free, total) = (free.check()?, total.check()?);
        let info = gpu(index)?.memory_info()?;
        free.set(info.free)?;
        total.set(info.total)
    })
}

unsafe extern "C" fn gemm(stream: *mut c_void, product: *const Gemm) -> CUresult {
    // SAFETY: as above, for reading.
    let product = unsafe { In::new(product) };
    answer("gemm", || {
        let product = product.get()?;
        let stream = find(CUstream(stream as usize), DefaultStream::Legacy)?;
        stream::submit(stream, |stream| Gemm { stream, ..product }, &[])
    })
}

unsafe extern "C" fn solve(stream: *mut c_void, system: *const TriangularSolve) -> CUresult {
    // SAFETY: as above, for reading.
    let system = unsafe { In::new(system) };
    answer("solve", || {
        let system = system.get()?;
        let stream = find(CUstream(stream as usize), DefaultStream::Legacy)?;
        stream::submit(stream, |stream| TriangularSolve { stream, ..system }, &[])
    })
}

unsafe extern "C" fn matmul(stream: *mut c_void, product: *const MatmulLt) -> CUresult {
    // SAFETY: as above, for reading.
    let product = unsafe { In::new(product) };
    answer("matmul", || {
        let product = product.get()?;
        let stream = find(CUstream(stream as usize), DefaultStream::Legacy)?;
        stream.gpu().needs(exec::EPILOGUES, "matrix products with epilogues")?;
        stream::submit(stream, |stream| MatmulLt { stream, ..product }, &[])
    })
}

unsafe extern "C" fn vector_op(
    stream: *mut c_void,
    operation: *const VectorOp,
    place: *mut c_void,
) -> CUresult {
    // SAFETY: as above, for reading.
    let operation = unsafe { In::new(operation) };
    answer("vector", || {
        let operation = operation.get()?;
        let stream = find(CUstream(stream as usize), DefaultStream::Legacy)?;
        stream.gpu().needs(exec::VECTORS, "operations on vectors")?;
        if place.is_null() {
            return stream::submit(stream, |stream| VectorOp { stream, ..operation }, &[]);
        }
        vector::sum(stream, operation, place)
    })
}

unsafe extern "C" fn abilities(place: *mut u32) -> CUresult {
    // SAFETY: as above.
    let out = unsafe { Out::new(place) };
    answer("abilities", || out.check()?.set(current::context()?.gpu().shown.facts.abilities))
}

unsafe extern "C" fn counters(counters: *mut Counters) -> CUresult {
    // SAFETY: as above.
    let out = unsafe { Out::new(counters) };
    answer("counters", || {
        let out = out.check()?;
        out.set(lifecycle::attached()?.open().map(|gpu| gpu.queue.session.counters()).sum())
    })
}

unsafe extern "C" fn done(count: *mut u64) -> CUresult {
    // SAFETY: as above.
    let out = unsafe { Out::new(count) };
    answer("done", || out.check()?.set(current::context()?.gpu().queue.session.done()))
}

unsafe extern "C" fn echo(index: c_int) -> CUresult {
    answer("echo", || {
        let cookie = 0x7667_7075;
        let back: u64 = gpu(index)?.queue.ask(Echo { reply: 0, reserved: 0, cookie }, &[])?;
        if back == cookie { Ok(()) } else { Err(CUresult::UNKNOWN) }
    })
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table {
        bytes: size_of::<Table>(),
        version: VERSION,
        reserved: 0,
        life: alive,
        device_count,
        device,
        visible,
        memory_info,
        gemm,
        solve,
        matmul,
        vector: vector_op,
        abilities,
        counters,
        done,
        echo,
    })
}

/// Logs the ids of NVIDIA's private tables that the program asks for, each once. Many of the programs that
/// ask do not work without them.
fn tell_unknown(uuid: CUuuid) {
    static TOLD: Mutex<Vec<CUuuid>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock();
    if told.contains(&uuid) || told.len() >= TOLD_MOST {
        return;
    }
    told.push(uuid);
    let text = uuid_text(&uuid);
    let text = text.strip_prefix("GPU-").unwrap_or(&text);
    if uuid == NVRTC {
        log::debug(format_args!(
            "NVRTC asks for NVIDIA's private export table {text}, which does not exist here, and does without it"
        ));
        return;
    }
    log::warn(format_args!(
        "the program asks for NVIDIA's private export table {text}, which does not exist here; a statically linked CUDA runtime, cuDNN, NCCL \
         and cuFFT need such tables and a genuine driver behind them, and do not work: link the CUDA runtime dynamically (nvcc -cudart shared)"
    ));
}

exports! {
    /// Stores the address of the private table with this id. Can be called before `cuInit`.
    pub fn cuGetExportTable(out: Out<*const c_void>, uuid: In<CUuuid>) -> CUresult {
        let out = out.check()?;
        let uuid = uuid.get()?;
        if uuid != UUID {
            tell_unknown(uuid);
            return Err(CUresult::NOT_FOUND);
        }
        out.set((&raw const *table()).cast())
    }
}
