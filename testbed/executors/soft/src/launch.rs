//! Kernel launches: the way from a checked launch to the engine.

use std::sync::PoisonError;

use vgpu_arena::View;
use vgpu_simt::{Control, Launch as Run, Output, run};
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, Launch};

use crate::copy::CopyError;
use crate::function::Function;
use crate::runner::{Runner, TaskError};

/// Bytes of the memory that the blocks of a cooperative grid meet in: a size and a barrier, as cooperative groups lay them out.
const WORKSPACE: u64 = 4096;

/// Where a kernel's `printf` goes: the device's log.
struct Log<'a> {
    session: u32,
    kernel: &'a str,
}

impl Output for Log<'_> {
    fn printf(&self, text: &str) {
        for line in text.lines() {
            tracing::info!(session = self.session, kernel = self.kernel, "{line}");
        }
    }
}

impl Runner {
    /// Runs a kernel to its end.
    pub(crate) fn launch(
        &self,
        memory: &View,
        function: &Function,
        body: &Launch,
        params: &[u8],
    ) -> Result<(), TaskError> {
        let cooperative = body.flags & LAUNCH_COOPERATIVE != 0;
        let mut launch = Run {
            grid: body.grid,
            block: body.block,
            dynamic_shared: body.shared_bytes,
            params,
            cooperative,
            workspace: 0,
        };
        if !cooperative {
            return self.run_kernel(memory, function, &launch);
        }
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        if workspace.is_none() {
            *workspace = Some(self.memory.allocate_own(WORKSPACE)?);
        }
        launch.workspace = workspace.as_ref().map_or(0, crate::memory::Allocation::address);
        let memory = self.memory.view()?;
        let fresh = memory.writable(launch.workspace, WORKSPACE).map_err(CopyError::from)?;
        fresh.copy_from(&[0u8; WORKSPACE as usize]);
        self.run_kernel(&memory, function, &launch)
    }

    fn run_kernel(&self, memory: &View, function: &Function, launch: &Run<'_>) -> Result<(), TaskError> {
        let control = Control::under(self.limited());
        let name = &function.kernel.name;
        let log = Log { session: self.host.session(), kernel: name };
        run(&function.program, launch, memory, self.device.pool(), &control, &log)
            .map_err(|fault| TaskError::Kernel { name: name.clone(), fault })
    }
}
