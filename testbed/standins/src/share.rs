//! Programs that share a GPU: one that keeps it busy, one that decodes tokens, and two that block it. Each
//! prints `ready`, starts when a line arrives on stdin, and prints what it got as one line of JSON.

use std::ffi::{c_uint, c_void};
use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use serde_json::json;

use crate::driver::{Handle, done, functions};
use crate::mix;
use crate::percentiles::{nanoseconds, percentiles};

functions! {
    alloc = "cuMemAlloc_v2"(*mut u64, usize);
    to_host = "cuMemcpyDtoH_v2"(*mut c_void, u64, usize);
    load = "cuModuleLoadData"(*mut Handle, *const c_void);
    function = "cuModuleGetFunction"(*mut Handle, Handle, *const std::ffi::c_char);
    launch = "cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    create_stream = "cuStreamCreate"(*mut Handle, c_uint);
    create_event = "cuEventCreate"(*mut Handle, c_uint);
    record = "cuEventRecord"(Handle, Handle);
    await_event = "cuEventSynchronize"(Handle);
    host_function = "cuLaunchHostFunc"(Handle, unsafe extern "C" fn(*mut c_void), *mut c_void);
}

/// What a program does with the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Keeps it busy with kernels of one length.
    Busy,
    /// Decodes tokens: several kernels, a copy of the result, and a pause.
    Token,
    /// Decodes a token at set times, or at once if that time is over.
    Paced,
    /// Launches one kernel that never ends.
    Endless,
    /// Has a stream wait for a function of the program that does not return, with kernels behind it.
    Held,
}

/// How a program works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What the program does.
    pub load: Load,
    /// How long it works once it was told to start.
    pub time: Duration,
    /// Steps of each kernel, which decide how long it takes.
    pub steps: u32,
    /// Kernels of one token.
    pub kernels: u32,
    /// Blocks of the kernel that never ends. A GPU that does not run its code needs many.
    pub endless_blocks: u32,
    /// Time between two tokens, or between the times at which they are due.
    pub pause: Duration,
}

/// Words that a kernel works on, and threads of a block.
const WORDS: u32 = 2048;
const BLOCK: u32 = 256;
/// Launches between two events of a busy program, and number of events that it may be ahead.
const BATCH: usize = 4;
const AHEAD: usize = 4;

/// PTX of a kernel that does not end.
const ENDLESS: &std::ffi::CStr = c"
.version 6.0
.target sm_50
.address_size 64
.visible .entry endless()
{
AGAIN:
    bra AGAIN;
}
";

/// Set when a function that holds a stream may return.
static RELEASED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn hold(_: *mut c_void) {
    while !RELEASED.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Program {
    cuda: Cuda,
    kernel: Handle,
    memory: u64,
    steps: u32,
}

impl Program {
    fn start(steps: u32) -> Result<Self> {
        let cuda = Cuda::begin()?;
        let mut memory = 0;
        // SAFETY: a live place for the address.
        done("cuMemAlloc", unsafe { (cuda.alloc)(&raw mut memory, WORDS as usize * 4) })?;
        let kernel = kernel(&cuda, mix::PTX, mix::NAME)?;
        Ok(Self { cuda, kernel, memory, steps })
    }

    fn launch(&self, stream: Handle) -> Result<()> {
        let (mut memory, mut words, mut a, mut b, mut steps) = (self.memory, WORDS, 5_u32, 7_u32, self.steps);
        let mut parameters: [*mut c_void; 5] = [
            (&raw mut memory).cast(),
            (&raw mut words).cast(),
            (&raw mut a).cast(),
            (&raw mut b).cast(),
            (&raw mut steps).cast(),
        ];
        let (blocks, parameters) = (WORDS / BLOCK, parameters.as_mut_ptr());
        // SAFETY: the kernel takes these parameters, which the call copies, and works on allocated memory.
        let launched = unsafe {
            (self.cuda.launch)(self.kernel, blocks, 1, 1, BLOCK, 1, 1, 0, stream, parameters, ptr::null_mut())
        };
        done("cuLaunchKernel", launched)
    }

    /// Waits for all work of the default stream.
    fn fetch(&self) -> Result<()> {
        let mut word = [0_u8; 16];
        // SAFETY: a live place for the bytes, and the start of the allocation.
        let copied = unsafe { (self.cuda.to_host)(word.as_mut_ptr().cast(), self.memory, word.len()) };
        done("cuMemcpyDtoH", copied)
    }

    /// Keeps the GPU busy. Returns how many launches were complete in time, and how many of them in the last
    /// third of it.
    fn keep_busy(&self, time: Duration) -> Result<(u64, u64)> {
        let mut events = [ptr::null_mut(); AHEAD];
        for event in &mut events {
            // SAFETY: a live place for the event.
            done("cuEventCreate", unsafe { (self.cuda.create_event)(event, 2) })?;
        }
        let start = Instant::now();
        let (mut complete, mut late, mut batches) = (0, 0, 0_usize);
        loop {
            let event = events[batches % AHEAD];
            if batches >= AHEAD {
                // SAFETY: the event was recorded.
                done("cuEventSynchronize", unsafe { (self.cuda.await_event)(event) })?;
                let now = start.elapsed();
                if now >= time {
                    return Ok((complete, late));
                }
                complete += BATCH as u64;
                if now >= time * 2 / 3 {
                    late += BATCH as u64;
                }
            }
            for _ in 0..BATCH {
                self.launch(ptr::null_mut())?;
            }
            // SAFETY: a live event and the default stream.
            done("cuEventRecord", unsafe { (self.cuda.record)(event, ptr::null_mut()) })?;
            batches += 1;
        }
    }

    fn decode(&self, settings: &Settings) -> Result<Vec<u64>> {
        let (start, mut times, mut due) = (Instant::now(), Vec::new(), Duration::ZERO);
        while start.elapsed() < settings.time {
            let begun = Instant::now();
            for _ in 0..settings.kernels {
                self.launch(ptr::null_mut())?;
            }
            self.fetch()?;
            times.push(nanoseconds(begun));
            due += settings.pause;
            let pause = match settings.load {
                Load::Paced => due.saturating_sub(start.elapsed()),
                _ => settings.pause,
            };
            std::thread::sleep(pause);
        }
        Ok(times)
    }

    /// Blocks the GPU, or a stream, until the time is over.
    fn block(&self, settings: &Settings) -> Result<()> {
        let mut stream = ptr::null_mut();
        // SAFETY: a live place for the stream; 1 is CU_STREAM_NON_BLOCKING.
        done("cuStreamCreate", unsafe { (self.cuda.create_stream)(&raw mut stream, 1) })?;
        if settings.load == Load::Held {
            // SAFETY: the function needs no data, and returns before the process ends.
            let held = unsafe { (self.cuda.host_function)(stream, hold, ptr::null_mut()) };
            done("cuLaunchHostFunc", held)?;
            self.launch(stream)?;
        } else {
            let (kernel, none) = (kernel(&self.cuda, ENDLESS, c"endless")?, ptr::null_mut());
            let blocks = settings.endless_blocks;
            // SAFETY: the kernel has no parameters and is loaded.
            let launched = unsafe {
                (self.cuda.launch)(kernel, blocks, 1, 1, 1, 1, 1, 0, stream, ptr::null_mut(), none)
            };
            done("cuLaunchKernel", launched)?;
        }
        std::thread::sleep(settings.time);
        RELEASED.store(true, Ordering::SeqCst);
        Ok(())
    }
}

fn kernel(cuda: &Cuda, ptx: &std::ffi::CStr, name: &std::ffi::CStr) -> Result<Handle> {
    let (mut module, mut kernel) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live place for the module; the text ends with a zero.
    done("cuModuleLoadData", unsafe { (cuda.load)(&raw mut module, ptx.as_ptr().cast()) })?;
    // SAFETY: a live place for the function, of the module that was just loaded.
    done("cuModuleGetFunction", unsafe { (cuda.function)(&raw mut kernel, module, name.as_ptr()) })?;
    Ok(kernel)
}

/// Plays the program.
pub fn play(settings: &Settings) -> Result<ExitCode> {
    let program = Program::start(settings.steps)?;
    program.launch(ptr::null_mut())?;
    program.fetch()?;
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    let (mut line, waits) = (String::new(), Instant::now());
    if std::io::stdin().lock().read_line(&mut line).context("wait for the start")? == 0 {
        bail!("nobody said when to start");
    }
    let waited = waits.elapsed().as_millis() as u64;
    let mut report = match settings.load {
        Load::Busy => {
            let (launches, late) = program.keep_busy(settings.time)?;
            json!({ "launches": launches, "launches_in_the_last_third": late })
        }
        Load::Token | Load::Paced => {
            let times = program.decode(settings)?;
            let kernels = u64::from(settings.kernels);
            let due = settings.time.as_nanos().div_ceil(settings.pause.as_nanos().max(1)) as u64;
            let asked = (settings.load == Load::Paced).then_some(due * kernels);
            json!({
                "launches": times.len() as u64 * kernels,
                "asked": asked,
                "token_ns": percentiles(times),
            })
        }
        Load::Endless | Load::Held => {
            program.block(settings)?;
            json!({ "launches": 0 })
        }
    };
    report["waited_ms"] = json!(waited);
    writeln!(out, "{report}")?;
    out.flush()?;
    if settings.load == Load::Endless {
        // Nothing else ends the kernel.
        std::process::exit(0);
    }
    Ok(ExitCode::SUCCESS)
}
