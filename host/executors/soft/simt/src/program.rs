//! Programs: kernels lowered for this engine, and what they need.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use vgpu_arena::Window;
use vgpu_ptx::ir::{self, Kernel, Op};
use vgpu_ptx::{Effort, Interrupt};

use crate::fault::ProgramError;
use crate::lower::{self, Globals};
use crate::machine::{Features, LANES, Variant};

/// A kernel lowered for this engine. Clones share the code, which is immutable, and what is learnt from its
/// launches.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) inner: Arc<ProgramInner>,
    pub(crate) profile: Arc<LaunchProfile>,
}

/// What the launches of one user of a program leave for its next ones. No other user gets it.
#[derive(Debug, Default)]
pub(crate) struct LaunchProfile {
    /// Running mean of the time that a block takes, in nanoseconds; 0 before the first has run.
    pub(crate) block_time: AtomicU64,
    /// The windows with which the last launch ended, for the code of each shape: the next one mostly accesses
    /// the same memory. A window of another view is none.
    windows: [Mutex<Vec<Window>>; 2],
}

#[derive(Debug)]
pub(crate) struct ProgramInner {
    pub(crate) attributes: Attributes,
    /// The code for blocks in which the lanes of a warp share `%tid.y` and `%tid.z`, and for all other
    /// blocks.
    aligned: Variant,
    any: Variant,
    /// The variables of the module whose addresses are constants of the code, with these addresses.
    globals: Box<[(u32, u64)]>,
}

/// The resources that a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Offset of dynamic shared memory in the block's shared memory, in bytes.
    pub dynamic_shared_offset: u32,
    /// Bytes of local memory of a thread.
    pub local_bytes: u32,
    /// Whether a thread needs a stack besides.
    pub calls: bool,
    /// Whether it calls `malloc` or `free`.
    pub allocates: bool,
    /// Bytes of the parameters.
    pub param_bytes: u32,
    /// Number of 32-bit registers of a thread, at most 255. An upper bound: all that the kernel's text
    /// declares.
    pub registers: u32,
    /// Largest number of threads of a block.
    pub max_threads: u32,
    /// The only shape that a block may have, if the kernel requires one.
    pub required_threads: Option<[u32; 3]>,
}

impl Program {
    /// Lowers a kernel for the best features of this CPU. `globals` has the device address of each of the
    /// module's variables. An instruction that the engine does not have is an error here, never later.
    pub fn new(kernel: &Kernel, globals: &[u64]) -> Result<Self, ProgramError> {
        Self::with_features(kernel, globals, Features::best())
    }

    /// Lowers a kernel for one of [`Features::available`]. Other features become [`Features::Baseline`].
    pub fn with_features(kernel: &Kernel, globals: &[u64], features: Features) -> Result<Self, ProgramError> {
        Self::within(kernel, globals, features, &Effort::of_kernel(Interrupt::default()))
    }

    /// Lowers a kernel as far as the effort allows. Takes no lock.
    pub fn within(
        kernel: &Kernel,
        globals: &[u64],
        features: Features,
        effort: &Effort,
    ) -> Result<Self, ProgramError> {
        let globals = Globals::new(globals);
        let [aligned, any] = lower::compile(kernel, &globals, features, effort)?;
        let words = |class: &ir::Class| if *class == ir::Class::B64 { 2 } else { 1 };
        let attributes = Attributes {
            shared_bytes: kernel.shared_bytes,
            dynamic_shared_offset: kernel.dynamic_shared_offset,
            local_bytes: kernel.local_bytes,
            calls: kernel.calls,
            allocates: kernel.code.iter().any(|inst| matches!(inst.op, Op::Malloc { .. } | Op::Free { .. })),
            param_bytes: kernel.param_bytes,
            registers: kernel.registers.iter().map(words).sum::<u32>().min(255),
            max_threads: kernel.max_threads,
            required_threads: kernel.required_threads,
        };
        let inner = ProgramInner { attributes, aligned, any, globals: globals.used() };
        Ok(Self { inner: Arc::new(inner), profile: Arc::default() })
    }

    /// Whether the program is right where the module's variables have these addresses: it depends on those
    /// that its kernel names.
    #[must_use]
    pub fn fits(&self, globals: &[u64]) -> bool {
        self.inner.globals.iter().all(|&(index, address)| globals.get(index as usize) == Some(&address))
    }

    /// The same code for another user, who learns nothing from the launches of this one.
    #[must_use]
    pub fn unused(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), profile: Arc::default() }
    }

    /// Approximate size of the program in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.aligned.bytes() + self.inner.any.bytes() + size_of_val(&*self.inner.globals) as u64
    }

    /// The resources that the kernel needs.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.inner.attributes
    }
}

/// Whether the lanes of a warp share `%tid.y` and `%tid.z` in blocks of this shape.
const fn is_aligned([x, y, z]: [u32; 3]) -> bool {
    x.is_multiple_of(LANES as u32) || (y == 1 && z == 1)
}

impl ProgramInner {
    /// The code for blocks of this shape.
    pub(crate) const fn variant(&self, shape: [u32; 3]) -> &Variant {
        if is_aligned(shape) { &self.aligned } else { &self.any }
    }
}

impl LaunchProfile {
    /// Adds the windows with which a launch of this shape begins, if there has been one.
    pub(crate) fn load_windows(&self, shape: [u32; 3], to: &mut Vec<Window>) {
        if let Ok(windows) = self.windows[usize::from(is_aligned(shape))].try_lock() {
            to.extend_from_slice(&windows);
        }
    }

    /// Keeps the windows with which a launch of this shape ends. Another thread's are as good.
    pub(crate) fn store_windows(&self, shape: [u32; 3], from: &[Window]) {
        if let Ok(mut windows) = self.windows[usize::from(is_aligned(shape))].try_lock() {
            windows.clear();
            windows.extend_from_slice(from);
        }
    }
}
