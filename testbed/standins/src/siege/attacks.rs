//! The attacks of hostile programs, which use CUDA's public functions.

use std::ffi::c_void;
use std::process::ExitCode;
use std::ptr::null_mut;

use anyhow::{Result, anyhow, bail};

use super::class::Class;
use super::cuda::{Blas, Cuda};
use super::tell::{Outcomes, begun};
use super::{messages, ptx};
use crate::driver::{Code, Handle, SUCCESS};

/// Number of blocks by axis of the largest grid that CUDA permits.
const MOST_BLOCKS: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];
/// Number of bytes for copies and fills. Two such buffers are allocated, and the host has to hold them.
const COPIED: usize = 64 << 20;
/// Maximum number of calls of one kind before a hoarding program gives up, above all limits of the host.
const MANY: u64 = 2_000_000;
/// Bytes of local memory of a thread, near CUDA's maximum.
const LOCAL: usize = 500 << 10;

/// Attacks until the program is killed or its session is lost. In the latter case the program ends, and its
/// parent starts it again.
pub fn attack(class: Class) -> Result<ExitCode> {
    if class == Class::Messages {
        return messages::attack();
    }
    let cuda = Cuda::begin()?;
    let mut attacker = Attacker { cuda, outcomes: Outcomes::default() };
    match class {
        Class::EndlessGrid => attacker.launch_and_wait(&ptx::empty(), MOST_BLOCKS, 1)?,
        Class::EndlessLoop => attacker.launch_and_wait(&ptx::endless(), [64, 1, 1], 128)?,
        Class::Nanosleep => attacker.launch_and_wait(&ptx::pauses(20_000), [64, 1, 1], 32)?,
        Class::LocalMemory => attacker.launch_and_wait(&ptx::local(LOCAL), [64, 1, 1], 1024)?,
        Class::Printf => attacker.launch_and_wait(&ptx::printing(), [4096, 1, 1], 256)?,
        Class::Products => attacker.products()?,
        Class::Copies => attacker.copies()?,
        Class::EndlessGraph => attacker.graph()?,
        Class::Registers => attacker.load(|round| ptx::live_across_barriers(4000, 4000 + round))?,
        Class::Slots => attacker.load(|round| ptx::slots(30_000 + round))?,
        Class::HeldStream => attacker.held_stream()?,
        Class::Allocations => attacker.allocations()?,
        Class::Cooperative => attacker.cooperative()?,
        Class::Handles => attacker.handles()?,
        Class::Killed => attacker.killed()?,
        Class::Exits => {
            attacker.endless()?;
            return Ok(ExitCode::SUCCESS);
        }
        Class::Messages => {}
    }
    Ok(ExitCode::SUCCESS)
}

struct Attacker {
    cuda: Cuda,
    outcomes: Outcomes,
}

/// Blocks a stream as a host function, because it never returns.
extern "C" fn never(_: *mut c_void) {
    loop {
        std::thread::park();
    }
}

impl Attacker {
    fn note(&mut self, call: &'static str, code: Code) -> Result<Code> {
        self.outcomes.note(call, code)?;
        Ok(code)
    }

    fn kernel(&mut self, text: &str) -> Result<Handle> {
        let module = match self.cuda.module(text) {
            Ok(module) => module,
            Err(code) => return self.refused("cuModuleLoadData", code),
        };
        match self.cuda.kernel(module) {
            Ok(kernel) => Ok(kernel),
            Err(code) => self.refused("cuModuleGetFunction", code),
        }
    }

    /// Records the status of a failed call and returns an error, which ends the attack.
    fn refused<T>(&mut self, call: &'static str, code: Code) -> Result<T> {
        self.note(call, code)?;
        bail!("{call} returned {code}")
    }

    fn memory(&mut self, bytes: usize) -> Result<u64> {
        let mut address = 0;
        match self.cuda.alloc(&mut address, bytes) {
            SUCCESS => Ok(address),
            code => self.refused("cuMemAlloc", code),
        }
    }

    fn stream(&mut self) -> Result<Handle> {
        let mut stream = null_mut();
        match self.cuda.stream(&mut stream, 1) {
            SUCCESS => Ok(stream),
            code => self.refused("cuStreamCreate", code),
        }
    }

    /// Launches a kernel in an endless loop and waits for each launch.
    fn launch_and_wait(&mut self, text: &str, grid: [u32; 3], threads: u32) -> Result<()> {
        let kernel = self.kernel(text)?;
        begun()?;
        loop {
            let launched = self.cuda.launch(kernel, grid, threads, null_mut());
            let launched = self.note("cuLaunchKernel", launched)?;
            let waited = self.cuda.synchronize();
            let waited = self.note("cuCtxSynchronize", waited)?;
            if launched != SUCCESS && waited != SUCCESS {
                return Ok(());
            }
        }
    }

    fn products(&mut self) -> Result<()> {
        let matrix = self.memory(4096)?;
        let blas = Blas::begin()?;
        begun()?;
        loop {
            let asked = blas.products(matrix, i32::MAX);
            let asked = self.note("cublasSgemmStridedBatched", asked)?;
            let waited = self.cuda.synchronize();
            self.note("cuCtxSynchronize", waited)?;
            if asked != SUCCESS {
                return Ok(());
            }
        }
    }

    fn copies(&mut self) -> Result<()> {
        let (from, to) = (self.memory(COPIED)?, self.memory(COPIED)?);
        begun()?;
        for round in 0_u64.. {
            // One byte in each row of a page, and then all bytes.
            let rows = self.cuda.fill_rows(from, 4096, round as u8, 1, COPIED / 4096, null_mut());
            self.note("cuMemsetD2D8Async", rows)?;
            let filled = self.cuda.fill(from, round as u8, COPIED, null_mut());
            self.note("cuMemsetD8Async", filled)?;
            let copied = self.cuda.copy(to, from, COPIED, null_mut());
            if self.note("cuMemcpyDtoDAsync", copied)? != SUCCESS {
                break;
            }
        }
        Ok(())
    }

    fn graph(&mut self) -> Result<()> {
        let kernel = self.kernel(&ptx::empty())?;
        let stream = self.stream()?;
        let begin = self.cuda.begin_capture(stream, 2);
        self.note("cuStreamBeginCapture", begin)?;
        for _ in 0..1000 {
            self.cuda.launch(kernel, MOST_BLOCKS, 1, stream);
        }
        let (mut graph, mut executable) = (null_mut(), null_mut());
        let end = self.cuda.end_capture(stream, &mut graph);
        self.note("cuStreamEndCapture", end)?;
        let made = self.cuda.instantiate(&mut executable, graph, 0);
        self.note("cuGraphInstantiate", made)?;
        begun()?;
        loop {
            let launched = self.cuda.launch_graph(executable, stream);
            let launched = self.note("cuGraphLaunch", launched)?;
            let waited = self.cuda.synchronize();
            self.note("cuCtxSynchronize", waited)?;
            if launched != SUCCESS {
                return Ok(());
            }
        }
    }

    /// Loads one text after another, each of which is new to the device.
    fn load(&mut self, text: impl Fn(usize) -> String) -> Result<()> {
        begun()?;
        for round in 0.. {
            match self.cuda.module(&text(round)) {
                Ok(module) => {
                    let code = self.cuda.kernel(module).err().unwrap_or(SUCCESS);
                    self.note("cuModuleGetFunction", code)?;
                }
                Err(code) => {
                    self.note("cuModuleLoadData", code)?;
                    break;
                }
            }
        }
        Ok(())
    }

    fn held_stream(&mut self) -> Result<()> {
        let memory = self.memory(4096)?;
        let stream = self.stream()?;
        begun()?;
        let held = self.cuda.host_function(stream, never, null_mut());
        self.note("cuLaunchHostFunc", held)?;
        for round in 0..MANY {
            let code = self.cuda.fill(memory, round as u8, 4096, stream);
            if code != SUCCESS {
                self.note("cuMemsetD8Async", code)?;
                return Ok(());
            }
        }
        let waited = self.cuda.synchronize();
        self.note("cuCtxSynchronize", waited)?;
        Ok(())
    }

    fn allocations(&mut self) -> Result<()> {
        begun()?;
        loop {
            let mut addresses = Vec::new();
            let refused = loop {
                let mut address = 0;
                match self.cuda.alloc(&mut address, 4096) {
                    SUCCESS => addresses.push(address),
                    code => break code,
                }
            };
            self.note("cuMemAlloc", refused)?;
            // A session that is lost gives nothing back.
            for address in addresses {
                let freed = self.cuda.free(address);
                if freed != SUCCESS {
                    self.note("cuMemFree", freed)?;
                    return Ok(());
                }
            }
        }
    }

    fn cooperative(&mut self) -> Result<()> {
        let kernel = self.kernel(&ptx::local(LOCAL))?;
        begun()?;
        for blocks in [1 << 10, 1 << 16, 1 << 24, 0x7fff_ffff] {
            let launched = self.cuda.launch_together(kernel, blocks, 1024, null_mut());
            self.note("cuLaunchCooperativeKernel", launched)?;
            let waited = self.cuda.synchronize();
            self.note("cuCtxSynchronize", waited)?;
        }
        Ok(())
    }

    fn handles(&mut self) -> Result<()> {
        begun()?;
        let mut handle = null_mut();
        let refused = (0..MANY).map(|_| self.cuda.stream(&mut handle, 1)).find(|code| *code != SUCCESS);
        self.note("cuStreamCreate", refused.unwrap_or(SUCCESS))?;
        let refused = (0..MANY).map(|_| self.cuda.event(&mut handle, 2)).find(|code| *code != SUCCESS);
        self.note("cuEventCreate", refused.unwrap_or(SUCCESS))?;
        let refused = (0..MANY).find_map(|number| {
            self.cuda.module(&ptx::numbered(number)).and_then(|module| self.cuda.kernel(module)).err()
        });
        self.note("cuModuleGetFunction", refused.unwrap_or(SUCCESS))?;
        let refused = self.graphs()?;
        self.note("cuGraphInstantiate", refused)?;
        Ok(())
    }

    /// Creates graphs of one fill until one is refused, and returns the status.
    fn graphs(&mut self) -> Result<Code> {
        let memory = self.memory(4096)?;
        let stream = null_mut::<c_void>();
        for _ in 0..MANY {
            let (mut graph, mut executable) = (null_mut(), null_mut());
            let steps = [
                self.cuda.begin_capture(stream, 2),
                self.cuda.fill(memory, 1, 4096, stream),
                self.cuda.end_capture(stream, &mut graph),
                self.cuda.instantiate(&mut executable, graph, 0),
                self.cuda.launch_graph(executable, null_mut()),
            ];
            if let Some(code) = steps.into_iter().find(|code| *code != SUCCESS) {
                return Ok(code);
            }
        }
        Ok(SUCCESS)
    }

    /// Launches work that takes practically forever, without waiting for it.
    fn endless(&mut self) -> Result<()> {
        let kernel = self.kernel(&ptx::empty())?;
        begun()?;
        let launched = self.cuda.launch(kernel, MOST_BLOCKS, 1, null_mut());
        self.note("cuLaunchKernel", launched)?;
        Ok(())
    }

    fn killed(&mut self) -> Result<()> {
        self.memory(1 << 20)?;
        self.endless()?;
        // SAFETY: a process may end itself by any signal.
        let sent = unsafe { libc::raise(libc::SIGKILL) };
        Err(anyhow!("raise returned {sent}"))
    }
}
