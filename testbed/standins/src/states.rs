//! A CUDA program that enters a state and stays there until it is killed, or that works and checks its
//! results. It uses the CUDA runtime, and the driver API for states that load code.

mod code;

use std::ffi::{c_int, c_uint, c_void};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use libloading::os::unix::{Library, RTLD_NOW};

/// States that `vgpu-standin state` can enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgramState {
    /// Sends small messages without end.
    Message,
    /// Copies large blocks to the device in an endless loop.
    Copy,
    /// Has started a capture and recorded nodes.
    Capturing,
    /// Waits for a stream, while the test holds the device.
    Waiting,
    /// Attaches, and allocates 64 MiB once a line arrives on stdin.
    Hungry,
    /// Holds all of the device's memory until it is killed.
    Full,
    /// Runs a kernel with an infinite loop.
    Launching,
    /// Runs a graph whose kernel has an infinite loop.
    Graph,
    /// Makes the device load code once a line arrives on stdin, while the test holds the device.
    Compiling,
    /// Copies random blocks to the device and back, compares them, and prints a line for each round, until
    /// stdin closes.
    Working,
}

const TO_DEVICE: c_int = 1;
const TO_HOST: c_int = 2;

/// Runtime functions of the stand-in, with the types of cuda_runtime_api.h.
struct Cuda {
    malloc: unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int,
    free: unsafe extern "C" fn(*mut c_void) -> c_int,
    memcpy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int,
    memset: unsafe extern "C" fn(*mut c_void, c_int, usize, *mut c_void) -> c_int,
    stream: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int,
    synchronize: unsafe extern "C" fn(*mut c_void) -> c_int,
    begin: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    copy_back: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, *mut c_void) -> c_int,
    _library: Library,
}

impl Cuda {
    fn load() -> Result<Self> {
        let open = |name: &str| {
            // SAFETY: a CUDA runtime, whose initialisers any CUDA program runs.
            unsafe { Library::open(Some(Path::new(name)), RTLD_NOW) }
        };
        let library =
            open("libcudart.so.12").or_else(|_| open("libcudart.so.13")).context("load libcudart")?;
        macro_rules! get {
            ($name:literal) => {{
                // SAFETY: the field's type is the function's in cuda_runtime_api.h.
                let symbol = unsafe { library.get($name.as_bytes()) };
                *symbol.context(concat!("find ", $name))?
            }};
        }
        Ok(Self {
            malloc: get!("cudaMalloc"),
            free: get!("cudaFree"),
            memcpy: get!("cudaMemcpy"),
            memset: get!("cudaMemsetAsync"),
            stream: get!("cudaStreamCreateWithFlags"),
            synchronize: get!("cudaStreamSynchronize"),
            begin: get!("cudaStreamBeginCapture"),
            copy_back: get!("cudaMemcpyAsync"),
            _library: library,
        })
    }

    fn alloc(&self, bytes: usize) -> Result<*mut c_void> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the call stores one pointer.
        check("cudaMalloc", unsafe { (self.malloc)(&raw mut pointer, bytes) })?;
        Ok(pointer)
    }

    fn new_stream(&self) -> Result<*mut c_void> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the call stores one handle.
        check("cudaStreamCreateWithFlags", unsafe { (self.stream)(&raw mut stream, 1) })?;
        Ok(stream)
    }

    fn fill(&self, to: *mut c_void, value: c_int, bytes: usize, stream: *mut c_void) -> Result<()> {
        // SAFETY: `to` has `bytes` bytes of device memory; every caller's allocation is that long.
        check("cudaMemsetAsync", unsafe { (self.memset)(to, value, bytes, stream) })
    }

    fn copy_in(&self, to: *mut c_void, from: &[u8]) -> Result<()> {
        // SAFETY: the source is a slice; `to` has as many bytes of device memory.
        check("cudaMemcpy", unsafe { (self.memcpy)(to, from.as_ptr().cast(), from.len(), TO_DEVICE) })
    }

    fn copy_out(&self, to: &mut [u8], from: *mut c_void) -> Result<()> {
        // SAFETY: the destination is a slice; `from` has as many bytes of device memory.
        check("cudaMemcpy", unsafe { (self.memcpy)(to.as_mut_ptr().cast(), from, to.len(), TO_HOST) })
    }
}

fn check(what: &str, status: c_int) -> Result<()> {
    if status != 0 {
        bail!("{what} returned {status}");
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn forever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Returns a block of pseudorandom bytes that differ for each `round` (xorshift).
fn block(round: u64, bytes: usize) -> Vec<u8> {
    let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Gets into `state` by the API that has what it takes; says `ready` on stdout when there, and the bytes of
/// device memory that it holds.
pub fn enter(state: ProgramState) -> Result<ExitCode> {
    match state {
        ProgramState::Launching => code::launch()?,
        ProgramState::Graph => code::launch_graph()?,
        ProgramState::Compiling => code::compile()?,
        _ => by_runtime(state)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn by_runtime(state: ProgramState) -> Result<()> {
    let cuda = Cuda::load()?;
    match state {
        ProgramState::Message => {
            let bytes = 1 << 20;
            let memory = cuda.alloc(bytes)?;
            for round in 0u64.. {
                cuda.fill(memory, (round & 0xff) as c_int, 64, std::ptr::null_mut())?;
                if round == 1000 {
                    say(&format!("ready {bytes}"))?;
                }
            }
        }
        ProgramState::Copy => {
            let source = vec![0x5a; 64 << 20];
            let memory = cuda.alloc(source.len())?;
            cuda.copy_in(memory, &source)?;
            say(&format!("ready {}", source.len()))?;
            loop {
                cuda.copy_in(memory, &source)?;
            }
        }
        ProgramState::Capturing => {
            let bytes = 4 << 20;
            let memory = cuda.alloc(bytes)?;
            let stream = cuda.new_stream()?;
            // SAFETY: the stream was just made; mode 2 is relaxed, which is what GGML uses.
            check("cudaStreamBeginCapture", unsafe { (cuda.begin)(stream, 2) })?;
            for value in 0..10 {
                cuda.fill(memory, value, bytes, stream)?;
            }
            say(&format!("ready {bytes}"))?;
            forever();
        }
        ProgramState::Waiting => {
            let bytes = 2 << 20;
            let memory = cuda.alloc(bytes)?;
            let stream = cuda.new_stream()?;
            say(&format!("ready {bytes}"))?;
            // The test holds the device now; the wait below then does not end.
            std::io::stdin().lock().read_line(&mut String::new())?;
            let mut back = vec![0u8; 4096];
            cuda.fill(memory, 7, bytes, stream)?;
            // SAFETY: `back` outlives the wait; the device memory is longer.
            let status =
                unsafe { (cuda.copy_back)(back.as_mut_ptr().cast(), memory, back.len(), TO_HOST, stream) };
            check("cudaMemcpyAsync", status)?;
            // SAFETY: the stream is alive.
            check("cudaStreamSynchronize", unsafe { (cuda.synchronize)(stream) })?;
            bail!("the wait ended though nothing released the device");
        }
        ProgramState::Hungry => {
            cuda.alloc(1)?;
            say("ready 0")?;
            std::io::stdin().lock().read_line(&mut String::new())?;
            cuda.alloc(64 << 20)?;
            say("allocated")?;
        }
        ProgramState::Full => {
            let mut held = 0;
            // Ever smaller pieces, until none fits.
            let mut piece = 256 << 20;
            while piece >= 4096 {
                match cuda.alloc(piece) {
                    Ok(_) => held += piece,
                    Err(_) => piece /= 2,
                }
            }
            say(&format!("ready {held}"))?;
            forever();
        }
        ProgramState::Working => work(&cuda)?,
        ProgramState::Launching | ProgramState::Graph | ProgramState::Compiling => {
            unreachable!("states of the driver API")
        }
    }
    Ok(())
}

/// Performs rounds of copies of varying sizes until stdin closes.
fn work(cuda: &Cuda) -> Result<()> {
    let (send, closed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while std::io::stdin().lock().read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            line.clear();
        }
        let _ = send.send(());
    });
    for round in 0u64.. {
        let sent = block(round, 1 + (round as usize * 7919) % (1 << 20));
        let memory = cuda.alloc(sent.len())?;
        cuda.copy_in(memory, &sent)?;
        let mut back = vec![0; sent.len()];
        cuda.copy_out(&mut back, memory)?;
        if back != sent {
            bail!("round {round}: {} bytes came back changed", sent.len());
        }
        // SAFETY: allocated above, not used after.
        check("cudaFree", unsafe { (cuda.free)(memory) })?;
        say(&format!("round {round}"))?;
        if closed.try_recv().is_ok() {
            break;
        }
    }
    Ok(())
}
