//! Kernel launches: passes a launch that has been checked to the engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use vgpu_arena::View;
use vgpu_device::{Charge, OutOfMemory, Resource, SessionHost};
use vgpu_simt::{Control, GridLaunch, Heap, LaunchStats, Ledger, Output, launch_grid};
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, Launch};

use crate::function::Function;
use crate::heap::OwnHeap;
use crate::memory::Allocation;
use crate::profile::Recorder;

use super::Runner;
use super::copy::CopyError;
use super::error::TaskError;

/// Bytes of the memory by which the blocks of a cooperative grid synchronize: a size and a barrier, in the
/// layout of CUDA's cooperative groups. It is zeroed before each launch.
const WORKSPACE: u64 = 4096;

/// Bytes of the stack of a thread: CUDA's default, which the guest reports.
const STACK: u32 = 1024;

/// Writes the `printf` output of a kernel to the device's log, and counts the launch.
struct LaunchOutput<'a> {
    host: &'a SessionHost,
    recorder: &'a Recorder,
    kernel: &'a str,
    /// Number of threads of a block.
    threads: u32,
    start: Instant,
}

impl Output for LaunchOutput<'_> {
    fn record_stats(&self, tally: &LaunchStats) {
        self.recorder.launched(self.kernel, self.threads, tally, self.start.elapsed());
    }

    fn printf(&self, text: &str) {
        for line in text.lines() {
            let session = self.host.session();
            self.host.log(line.len(), || tracing::info!(session, kernel = self.kernel, "{line}"));
        }
    }
}

/// Charges the host memory of a launch to the session.
#[derive(Debug)]
struct Scratch(Mutex<Charge>);

impl Ledger for Scratch {
    fn charge(&self, bytes: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).grow(bytes).is_ok()
    }
}

impl Runner {
    /// Runs a kernel to its end. The launch has passed [`Function::check`].
    pub(super) fn launch(
        &self,
        memory: &View,
        function: &Function,
        body: &Launch,
        params: &[u8],
    ) -> Result<(), TaskError> {
        let cooperative = body.flags & LAUNCH_COOPERATIVE != 0;
        let mut launch = GridLaunch {
            grid: body.grid,
            block: body.block,
            dynamic_shared: body.shared_bytes,
            stack: STACK,
            heap: None,
            params,
            cooperative,
            workspace: 0,
        };
        let (heap, view);
        let memory = if function.program.attributes().allocates {
            heap = self.heap()?;
            launch.heap = Some(&heap);
            view = self.memory.view()?;
            &view
        } else {
            memory
        };
        if !cooperative {
            return self.run_kernel(memory, function, &launch);
        }
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        if workspace.is_none() {
            *workspace = Some(self.memory.allocate_own(WORKSPACE)?);
        }
        launch.workspace = workspace.as_ref().map_or(0, Allocation::address);
        let memory = self.memory.view()?;
        let fresh = memory.writable(launch.workspace, WORKSPACE).map_err(CopyError::from)?;
        fresh.copy_from(&[0u8; WORKSPACE as usize]);
        self.run_kernel(&memory, function, &launch)
    }

    /// Returns the heap of the session's kernels. It is made on first use and lasts as long as the session.
    fn heap(&self) -> Result<Arc<Heap>, OutOfMemory> {
        let mut own = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let own = match &mut *own {
            Some(own) => own,
            none => none.insert(OwnHeap::new(&self.memory, &self.host)?),
        };
        Ok(Arc::clone(own.heap()))
    }

    /// Runs a kernel on the device's threads. An error carries the kernel's name.
    fn run_kernel(
        &self,
        memory: &View,
        function: &Function,
        launch: &GridLaunch<'_>,
    ) -> Result<(), TaskError> {
        let scratch = self.host.charges().charge(Resource::HostBytes, 0).map_err(|_| OutOfMemory)?;
        let control =
            Control::with_interrupt(self.limited()).with_ledger(Arc::new(Scratch(Mutex::new(scratch))));
        let name = &function.kernel.name;
        let log = LaunchOutput {
            host: &self.host,
            recorder: &self.recorder,
            kernel: name,
            threads: launch.block.iter().product(),
            start: Instant::now(),
        };
        launch_grid(&function.program, launch, memory, self.device.pool(), &control, &log)
            .map_err(|fault| TaskError::Kernel { name: name.clone(), fault })
    }
}
