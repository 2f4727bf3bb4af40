//! Functions: the kernels of a session's modules, prepared to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_ptx::ir::Kernel;
use vgpu_ptx::{Effort, Interrupt};
use vgpu_simt::{Program, ProgramError};
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, Launch};
use vgpu_wire::body::module::{FunctionReply, FunctionSet};

use crate::image::{Image, ImageError, kernel_bytes};
use crate::limits::{Demand, LaunchLimits};
use crate::programs::Programs;
use crate::status;

/// The `CUfunction_attribute` that has an effect here.
mod id {
    pub(super) const MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;
}

/// Smallest number of registers per thread that is reported for a kernel.
const REGISTERS_LEAST: u32 = 16;

/// A kernel of a loaded module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) program: Program,
    attributes: FunctionReply,
    /// Largest dynamic shared memory of a launch, in bytes. `cuFuncSetAttribute` changes it.
    max_dynamic_shared: AtomicU32,
}

impl Function {
    /// Prepares a kernel: parses it and lowers it to a program, unless earlier sessions have. `globals` holds
    /// the device addresses of the module's variables, by index. `sm` is the architecture that is reported as
    /// the binary's, as in `sm_61`.
    pub(crate) fn new(
        image: &Image,
        name: &str,
        globals: &[u64],
        limits: &LaunchLimits,
        sm: u32,
        programs: &Programs,
        interrupt: &Interrupt,
    ) -> Result<Self, ImageError> {
        let effort = Effort::of_kernel(interrupt.clone());
        let kernel = image.kernel(name, &effort)?;
        let refused = |error| match error {
            ProgramError::Engine(error) => ImageError::Engine { name: name.to_owned(), error },
            ProgramError::Spent(spent) => ImageError::Spent { what: format!("kernel {name}"), spent },
        };
        let program = programs.get(image.digest(), &kernel, globals, &effort).map_err(refused)?;
        let max_threads = kernel.max_threads.min(limits.threads);
        let constants = image.module.globals().iter().filter(|global| global.constant);
        let dynamic = limits.shared.saturating_sub(kernel.shared_bytes);
        let attributes = FunctionReply {
            max_threads,
            shared_bytes: kernel.shared_bytes,
            const_bytes: constants.map(|global| global.bytes as u32).sum(),
            local_bytes: kernel.local_bytes,
            registers: program
                .attributes()
                .registers
                .clamp(REGISTERS_LEAST, limits.registers_for(max_threads)),
            ptx_version: image.module.target(),
            binary_version: sm,
            max_dynamic_shared: dynamic,
            param_bytes: kernel.param_bytes,
            reserved: [0; 7],
        };
        Ok(Self { kernel, program, attributes, max_dynamic_shared: AtomicU32::new(dynamic) })
    }

    /// Returns the size in bytes of the host memory that the function uses, including the parsed kernel,
    /// which the session keeps alive.
    pub(crate) fn bytes(&self) -> u64 {
        size_of::<Self>() as u64 + kernel_bytes(&self.kernel) + self.program.bytes()
    }

    pub(crate) const fn attributes(&self) -> &FunctionReply {
        &self.attributes
    }

    /// Carries out `cuFuncSetAttribute`. Attributes that are only hints have no effect. Fails with
    /// `CUDA_ERROR_INVALID_VALUE` if dynamic shared memory exceeds what the device lets a kernel opt in to.
    pub(crate) fn set(&self, body: &FunctionSet, limits: &LaunchLimits) -> Result<(), u32> {
        if body.attribute == id::MAX_DYNAMIC_SHARED_SIZE_BYTES {
            let most = limits.shared_optin.saturating_sub(self.kernel.shared_bytes);
            let bytes = u32::try_from(body.value).ok().filter(|&bytes| bytes <= most);
            self.max_dynamic_shared.store(bytes.ok_or(status::INVALID_VALUE)?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Carries out `cuOccupancyMaxActiveBlocksPerMultiprocessor` for blocks of `threads` threads with
    /// `dynamic_shared` bytes of dynamic shared memory.
    pub(crate) fn occupancy(&self, threads: u32, dynamic_shared: u64, limits: &LaunchLimits) -> u32 {
        limits.blocks(&Demand {
            threads,
            max_threads: self.attributes.max_threads,
            registers: self.attributes.registers,
            shared: dynamic_shared.saturating_add(self.kernel.shared_bytes.into()),
        })
    }

    /// Applies the checks that CUDA makes before it sends a launch to the GPU. The error is the `CUresult` of
    /// the refused launch.
    pub(crate) fn check(&self, body: &Launch, param_bytes: usize, limits: &LaunchLimits) -> Result<(), u32> {
        let within = |size: [u32; 3], most: [u32; 3]| {
            size.iter().zip(most).all(|(&size, most)| (1..=most).contains(&size))
        };
        let threads = body.block.iter().map(|&axis| u64::from(axis)).product::<u64>();
        if !within(body.grid, limits.grid)
            || !within(body.block, limits.block)
            || threads > limits.threads.into()
            || self.kernel.required_threads.is_some_and(|required| required != body.block)
            || param_bytes != self.kernel.param_bytes as usize
            || body.shared_bytes > self.max_dynamic_shared.load(Ordering::Relaxed)
        {
            return Err(status::INVALID_VALUE);
        }
        if threads > self.attributes.max_threads.into() {
            return Err(status::LAUNCH_OUT_OF_RESOURCES);
        }
        // A cluster has one block.
        if body.cluster != [0; 3] && body.cluster != [1; 3] {
            return Err(status::INVALID_CLUSTER_SIZE);
        }
        if body.flags & LAUNCH_COOPERATIVE != 0 {
            let resident = self.occupancy(threads as u32, body.shared_bytes.into(), limits);
            let blocks = body.grid.iter().map(|&axis| u128::from(axis)).product::<u128>();
            if blocks > u128::from(resident) * u128::from(limits.multiprocessors) {
                return Err(status::COOPERATIVE_LAUNCH_TOO_LARGE);
            }
        }
        Ok(())
    }
}
