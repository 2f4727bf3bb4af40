//! A simulated device for one test: a module loaded into separate device memory, and launches of its kernels.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use vgpu_arena::Arena;
use vgpu_ptx::Module;
use vgpu_simt::{Control, Fault, Features, GridLaunch, Heap, LaunchStats, Output, Pool, Program};

/// Device address of the first allocation.
const BASE: u64 = 0x7000_0000_0000;
/// Size in bytes of the address range for allocations.
const SPAN: u64 = 1 << 30;
/// Budget of instructions, far above the needs of the tests' kernels. An engine that hangs then fails one
/// test rather than the whole run.
const BUDGET: u64 = 1 << 28;

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(2));

/// Number of instructions up to which kernels get machine code.
const MOST_STEPS: usize = 32_768;

/// A loaded module with its device memory.
pub struct Device {
    features: Features,
    /// Whether the engine generates machine code for the module's kernels.
    translates: bool,
    arena: Arena,
    /// Address of the next allocation.
    next: u64,
    module: Module,
    /// Device addresses of the module's globals.
    globals: Vec<u64>,
    /// Programs of all kernels, by name.
    programs: BTreeMap<String, Program>,
    output: Printed,
    /// Heap for `malloc`, once a test has created it.
    heap: Option<Arc<Heap>>,
    /// Whether warps have turns as short as possible.
    short_turns: bool,
}

/// Shape and limits of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of blocks by axis.
    pub grid: [u32; 3],
    /// Number of threads of a block by axis.
    pub block: [u32; 3],
    /// Size of a block's dynamic shared memory in bytes.
    pub dynamic_shared: u32,
    /// Size of a thread's stack in bytes.
    pub stack: u32,
    /// Whether the blocks may wait for each other.
    pub cooperative: bool,
    /// Device address of a cooperative grid's workspace, which its blocks read from registers.
    pub workspace: u64,
    /// Budget of instructions in loops and long straight lines.
    pub budget: u64,
}

impl Shape {
    /// Returns the shape of `blocks` blocks of `threads` threads, in one dimension.
    #[must_use]
    pub const fn line(blocks: u32, threads: u32) -> Self {
        Self::new([blocks, 1, 1], [threads, 1, 1])
    }

    /// Returns the shape of a grid of these blocks, without dynamic shared memory.
    #[must_use]
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, dynamic_shared: 0, stack: 1024, cooperative: false, workspace: 0, budget: BUDGET }
    }

    /// Returns the same shape with `bytes` of dynamic shared memory.
    #[must_use]
    pub const fn with_shared(self, bytes: u32) -> Self {
        Self { dynamic_shared: bytes, ..self }
    }
}

/// Kernel parameters, laid out as in C.
#[derive(Clone, Debug, Default)]
pub struct Params(Vec<u8>);

impl Params {
    /// Returns no parameters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn push(mut self, bytes: &[u8]) -> Self {
        self.0.resize(self.0.len().next_multiple_of(bytes.len()), 0);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Aligns the next parameter.
    #[must_use]
    pub fn align(mut self, bytes: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(bytes), 0);
        self
    }

    /// Appends a parameter of a byte.
    #[must_use]
    pub fn u8(self, value: u8) -> Self {
        self.push(&[value])
    }

    /// Appends a parameter of 32 bits.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.push(&value.to_le_bytes())
    }

    /// Appends a parameter of 64 bits.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.push(&value.to_le_bytes())
    }
}

#[derive(Default)]
struct Printed {
    text: Mutex<String>,
    stats: Mutex<Option<LaunchStats>>,
}

impl Output for Printed {
    fn record_stats(&self, stats: &LaunchStats) {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = Some(*stats);
    }

    fn printf(&self, text: &str) {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }
}

impl Device {
    /// Loads a module: allocates its globals, fills in their initial values and addresses, and lowers its
    /// kernels.
    pub fn new(text: &str, features: Features) -> Result<Self, String> {
        let module = Module::parse(text.as_bytes().to_vec()).map_err(|error| error.to_string())?;
        let arena = Arena::new(BASE, SPAN).map_err(|error| error.to_string())?;
        let mut device = Self {
            features,
            translates: features.translates() && text.lines().count() < MOST_STEPS,
            arena,
            next: BASE,
            module,
            globals: Vec::new(),
            programs: BTreeMap::new(),
            output: Printed::default(),
            heap: None,
            short_turns: false,
        };
        for index in 0..device.module.globals().len() {
            let bytes = device.module.globals()[index].bytes;
            let address = device.allocate(bytes);
            device.globals.push(address);
        }
        for (index, global) in device.module.globals().iter().enumerate() {
            device.write(device.globals[index], &global.data);
            for relocation in &global.relocations {
                let value = device.globals[relocation.global as usize].wrapping_add_signed(relocation.addend);
                device.write(device.globals[index] + relocation.offset, &value.to_le_bytes());
            }
        }
        for name in device.module.kernel_names() {
            let kernel = device.module.kernel(name).map_err(|error| error.to_string())?;
            let program = Program::with_features(&kernel, &device.globals, features)
                .map_err(|error| error.to_string())?;
            device.programs.insert(name.into(), program);
        }
        Ok(device)
    }

    /// Makes warps end their turn in each iteration of a loop, so that lanes part wherever they may.
    pub const fn shorten_turns(&mut self, short: bool) {
        self.short_turns = short;
    }

    /// Allocates exactly `bytes` of zeroed device memory. The addresses before and after it are not mapped.
    pub fn allocate(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.arena.map(address, bytes).expect("the arena has room");
        self.next += bytes.next_multiple_of(0x1_0000) + 0x1_0000;
        address
    }

    /// Creates a heap of `bytes` bytes for the kernels' allocations.
    pub fn make_heap(&mut self, bytes: u64) -> Arc<Heap> {
        let base = self.allocate(bytes);
        let heap = Arc::new(Heap::new(base, bytes).expect("memory"));
        self.heap = Some(Arc::clone(&heap));
        heap
    }

    /// Allocates device memory that holds `bytes`.
    pub fn upload(&mut self, bytes: &[u8]) -> u64 {
        let address = self.allocate(bytes.len() as u64);
        self.write(address, bytes);
        address
    }

    /// Allocates device memory that holds `words`.
    pub fn upload_words(&mut self, words: &[u32]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.upload(&bytes)
    }

    /// Writes bytes to device memory.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        let view = self.arena.view();
        view.writable(address, bytes.len() as u64).expect("memory of this test").copy_from(bytes);
    }

    /// Reads `bytes` bytes of device memory.
    #[must_use]
    pub fn read(&self, address: u64, bytes: u64) -> Vec<u8> {
        let mut copy = vec![0; bytes as usize];
        self.arena.view().readable(address, bytes).expect("memory of this test").copy_to(&mut copy);
        copy
    }

    /// Reads `count` 32-bit words at `address`.
    #[must_use]
    pub fn read_words(&self, address: u64, count: u64) -> Vec<u32> {
        let bytes = self.read(address, 4 * count);
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes"))).collect()
    }

    /// Reads `count` 64-bit words at `address`.
    #[must_use]
    pub fn read_longs(&self, address: u64, count: u64) -> Vec<u64> {
        let bytes = self.read(address, 8 * count);
        bytes.chunks_exact(8).map(|long| u64::from_le_bytes(long.try_into().expect("8 bytes"))).collect()
    }

    /// Returns the device address of the global with this name.
    #[must_use]
    pub fn global(&self, name: &str) -> u64 {
        let index = self.module.globals().iter().position(|global| global.name == name).expect("a global");
        self.globals[index]
    }

    /// Returns the name, device address and size in bytes of each variable of the module.
    pub fn globals(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let globals = self.module.globals().iter().zip(&self.globals);
        globals.map(|(global, &address)| (global.name.as_str(), address, global.bytes))
    }

    /// Returns the text that kernels have printed.
    #[must_use]
    pub fn printed(&self) -> String {
        self.output.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Launches a kernel. The outer error tells that the kernel does not exist or has no machine code; the
    /// inner error is the launch's fault.
    pub fn try_launch(
        &self,
        entry: &str,
        shape: Shape,
        params: &Params,
    ) -> Result<Result<(), Fault>, String> {
        self.launch_under(&Control::with_budget(shape.budget), entry, shape, params)
    }

    /// Launches a kernel under the caller's control. An engine with machine code must have machine code for
    /// the kernel, because otherwise the launch would not test it.
    pub fn launch_under(
        &self,
        control: &Control,
        entry: &str,
        shape: Shape,
        params: &Params,
    ) -> Result<Result<(), Fault>, String> {
        let program = self.programs.get(entry).ok_or_else(|| format!("no kernel {entry}"))?;
        let launch = GridLaunch {
            grid: shape.grid,
            block: shape.block,
            dynamic_shared: shape.dynamic_shared,
            stack: shape.stack,
            heap: self.heap.as_ref(),
            params: &params.0,
            cooperative: shape.cooperative,
            workspace: shape.workspace,
        };
        let mut control = control.clone();
        if self.short_turns {
            control = control.with_short_turns();
        }
        let outcome =
            vgpu_simt::launch_grid(program, &launch, &self.arena.view(), &POOL, &control, &self.output);
        let stats = self.output.stats.lock().unwrap_or_else(PoisonError::into_inner).take();
        match stats {
            Some(stats) if self.translates && !stats.translated => {
                Err(format!("{entry} has no machine code of {:?}", self.features))
            }
            _ => Ok(outcome),
        }
    }

    /// Launches the kernel `k`, whose last parameter is the address of `count` words, and returns the words
    /// that it stored.
    pub fn words(&mut self, shape: Shape, params: Params, count: u64) -> Result<Vec<u32>, String> {
        let results = self.allocate(4 * count);
        self.launch("k", shape, &params.u64(results))?;
        Ok(self.read_words(results, count))
    }

    /// Launches the kernel `k` as [`Device::words`] does, and compares the words with the expected ones.
    pub fn expect_words(
        &mut self,
        what: &str,
        shape: Shape,
        params: Params,
        wanted: &[u32],
    ) -> Result<(), String> {
        same(what, &self.words(shape, params, wanted.len() as u64)?, wanted)
    }

    /// Launches a kernel that must end with a fault of this code.
    pub fn expect_fault(
        &self,
        entry: &str,
        shape: Shape,
        params: &Params,
        code: u32,
    ) -> Result<Fault, String> {
        match self.try_launch(entry, shape, params)? {
            Err(fault) if fault.code() == code => Ok(fault),
            other => Err(format!("{other:?}, should have code {code}, printed {:?}", self.printed())),
        }
    }

    /// Launches a kernel that must succeed.
    pub fn launch(&self, entry: &str, shape: Shape, params: &Params) -> Result<(), String> {
        self.try_launch(entry, shape, params)?.map_err(|fault| format!("{entry}: {fault}"))
    }
}

/// Compares the values that kernels have stored with the expected ones.
pub fn same<T: PartialEq + std::fmt::LowerHex>(what: &str, got: &[T], wanted: &[T]) -> Result<(), String> {
    if got.len() != wanted.len() {
        return Err(format!("{what}: {} values instead of {}", got.len(), wanted.len()));
    }
    match got.iter().zip(wanted).position(|(got, wanted)| got != wanted) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: value {at} is {:#x}, should be {:#x}", got[at], wanted[at])),
    }
}
