//! What the VMs of each GPU have been promised, as `status` shows it.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use vgpu_findings::size;
use vgpu_share::{Figure, GpuShare, Holder, largest_reserve};

use crate::share;

/// A GPU with the VMs that have a share of it.
#[derive(Debug, Serialize)]
pub(crate) struct GpuReport {
    /// UUID, as NVIDIA's tools print it.
    uuid: String,
    /// Bytes of memory that the GPU has.
    total: u64,
    /// Bytes that are promised to no VM.
    reserve: u64,
    /// Bytes that are promised.
    promised: u64,
    /// Bytes that are still to be promised.
    free: u64,
    /// VMs in the order of their slots.
    vms: Vec<VmReport>,
}

/// The share of a VM.
#[derive(Debug, Serialize)]
struct VmReport {
    name: String,
    /// Number of the device's process.
    process: u64,
    /// Bytes that the VM has been promised.
    promised: u64,
    /// Bytes that each of its contexts costs, which are part of the promise.
    context_bytes: u64,
    /// Weight of its share of time.
    weight: u64,
}

/// Returns the GPUs that have VMs, from the directory that `given` names or the usual one. A GPU whose file
/// cannot be read is named on stderr, and does not hide the others. Nothing is made and nobody is waited for.
pub(crate) fn gpus(given: Option<&Path>) -> Result<Vec<GpuReport>> {
    let Some(gpus) = share::existing_gpus(given)? else { return Ok(Vec::new()) };
    let mut reports = Vec::new();
    for uuid in gpus.all()? {
        let report = gpus.existing_gpu(uuid).and_then(|gpu| Ok(GpuReport::new(&gpu, &gpu.holders()?)));
        match report {
            Ok(report) if report.vms.is_empty() => {}
            Ok(report) => reports.push(report),
            Err(error) => eprintln!("vgpu-device: {:#}", anyhow::Error::from(error)),
        }
    }
    Ok(reports)
}

impl GpuReport {
    fn new(gpu: &GpuShare, holders: &[Holder]) -> Self {
        let total = gpu.memory_bytes();
        let reserve = largest_reserve(holders);
        let promised = holders.iter().fold(0, |sum: u64, holder| sum.saturating_add(holder.held_bytes()));
        let vm = |holder: &Holder| VmReport {
            name: holder.name(),
            process: holder.figure(Figure::Process),
            promised: holder.held_bytes(),
            context_bytes: holder.figure(Figure::ContextBytes),
            weight: holder.figure(Figure::Weight),
        };
        let free = total.saturating_sub(reserve).saturating_sub(promised);
        Self {
            uuid: gpu.uuid().to_string(),
            total,
            reserve,
            promised,
            free,
            vms: holders.iter().map(vm).collect(),
        }
    }

    /// Returns whether the device of this process has a share.
    pub(crate) fn has(&self, process: u32) -> bool {
        self.vms.iter().any(|vm| vm.process == u64::from(process))
    }

    /// Writes the GPU for people.
    pub(crate) fn write(&self, text: &mut String) {
        let vms = if self.vms.len() == 1 { "1 VM".to_owned() } else { format!("{} VMs", self.vms.len()) };
        let [total, reserve, promised, free] = [self.total, self.reserve, self.promised, self.free].map(size);
        _ = writeln!(
            text,
            "{}  {total}, {reserve} reserved, {vms} promised {promised}, {free} free",
            self.uuid
        );
        let width = self.vms.iter().map(|vm| vm.name.len()).max().unwrap_or(0);
        for VmReport { name, process, promised, context_bytes, .. } in &self.vms {
            let (promised, context) = (size(*promised), size(*context_bytes));
            _ = writeln!(
                text,
                "  {name:width$}  promised {promised}, {context} a context, process {process}"
            );
        }
    }
}
