//! Programs: kernels lowered for this engine, with the resources that they need.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use vgpu_arena::Window;
use vgpu_ptx::ir::{self, Kernel, Op};
use vgpu_ptx::{Effort, Interrupt};

use crate::fault::ProgramError;
use crate::lower::{self, Globals};
use crate::machine::{Features, LANES, Variant};

/// A kernel lowered for this engine. Clones share the code, which is immutable, and the launch profile.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) inner: Arc<ProgramInner>,
    pub(crate) profile: Arc<LaunchProfile>,
}

/// Measurements of a session's launches that its later launches use. They are not shared with other sessions.
#[derive(Debug, Default)]
pub(crate) struct LaunchProfile {
    /// Running mean of the time that a block takes, in nanoseconds, or 0 before the first launch.
    pub(crate) block_time: AtomicU64,
    /// Windows that the last launch has used, for each of the two variants. The next launch mostly accesses
    /// the same memory. A window of another view never matches.
    windows: [Mutex<Vec<Window>>; 2],
}

#[derive(Debug)]
pub(crate) struct ProgramInner {
    pub(crate) attributes: Attributes,
    /// Code for blocks in which the lanes of a warp share `%tid.y` and `%tid.z`.
    aligned: Variant,
    any: Variant,
    /// Indices and addresses of the module's variables whose addresses are constants in the code.
    globals: Box<[(u32, u64)]>,
}

/// Resources that a kernel needs, and limits of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Static shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Offset of dynamic shared memory within the shared memory of a block, in bytes.
    pub dynamic_shared_offset: u32,
    /// Local memory of a thread in bytes, without its stack.
    pub local_bytes: u32,
    /// Whether the kernel has calls that need a stack.
    pub calls: bool,
    /// Whether the kernel calls `malloc` or `free`.
    pub allocates: bool,
    /// Size of the parameters in bytes.
    pub param_bytes: u32,
    /// Upper bound of the number of 32-bit registers of a thread, at most 255. It counts all registers that
    /// the kernel declares.
    pub registers: u32,
    /// Maximum number of threads in a block.
    pub max_threads: u32,
    /// Required shape of a block, if the kernel requires one.
    pub required_threads: Option<[u32; 3]>,
}

impl Program {
    /// Lowers a kernel for the best features of this CPU. `globals` has the device address of each variable
    /// of the module, by index. An instruction that the engine does not support is reported here, never by a
    /// launch.
    pub fn new(kernel: &Kernel, globals: &[u64]) -> Result<Self, ProgramError> {
        Self::with_features(kernel, globals, Features::best())
    }

    /// Lowers a kernel for one of [`Features::available`]. Other features are replaced by
    /// [`Features::Baseline`].
    pub fn with_features(kernel: &Kernel, globals: &[u64], features: Features) -> Result<Self, ProgramError> {
        Self::within(kernel, globals, features, &Effort::of_kernel(Interrupt::default()))
    }

    /// Lowers a kernel within the limits of `effort`; beyond them it fails with [`ProgramError::Spent`]. It
    /// takes no lock.
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

    /// Returns whether the program can be used with these addresses of the module's variables. Only variables
    /// that its kernel uses matter.
    #[must_use]
    pub fn fits(&self, globals: &[u64]) -> bool {
        self.inner.globals.iter().all(|&(index, address)| globals.get(index as usize) == Some(&address))
    }

    /// Returns a program with the same code and an empty launch profile, for another session.
    #[must_use]
    pub fn unused(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), profile: Arc::default() }
    }

    /// Returns the approximate size of the program in bytes, with its machine code.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.aligned.bytes() + self.inner.any.bytes() + size_of_val(&*self.inner.globals) as u64
    }

    /// Returns the resources that the kernel needs.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.inner.attributes
    }
}

/// Returns whether the lanes of a warp share `%tid.y` and `%tid.z` in blocks of this shape.
const fn is_aligned([x, y, z]: [u32; 3]) -> bool {
    x.is_multiple_of(LANES as u32) || (y == 1 && z == 1)
}

impl ProgramInner {
    /// Returns the variant of the code for blocks of this shape.
    pub(crate) const fn variant(&self, shape: [u32; 3]) -> &Variant {
        if is_aligned(shape) { &self.aligned } else { &self.any }
    }
}

impl LaunchProfile {
    /// Appends the windows that an earlier launch of this shape has stored, if no other thread accesses them
    /// now.
    pub(crate) fn load_windows(&self, shape: [u32; 3], to: &mut Vec<Window>) {
        if let Ok(windows) = self.windows[usize::from(is_aligned(shape))].try_lock() {
            to.extend_from_slice(&windows);
        }
    }

    /// Stores the windows of a launch of this shape, unless another thread is accessing the stored windows
    /// now.
    pub(crate) fn store_windows(&self, shape: [u32; 3], from: &[Window]) {
        if let Ok(mut windows) = self.windows[usize::from(is_aligned(shape))].try_lock() {
            windows.clear();
            windows.extend_from_slice(from);
        }
    }
}
