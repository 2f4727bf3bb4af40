//! One reading of all GPUs and their VMs.

use std::collections::BTreeSet;

use vgpu_share::scheduler::Overruns;
use vgpu_share::{Figure, SlotView, promised_bytes};

use super::SharedGpu;

/// A GPU with its VMs.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) uuid: String,
    /// Number by which NVIDIA's tools call it, if they have one.
    pub(super) number: Option<String>,
    /// Bytes of memory that it has, and that VMs have been promised.
    pub(super) memory: u64,
    pub(super) promised: u64,
    /// Number of slots that are left out, because another one has their name.
    pub(super) left_out: u64,
    pub(super) vms: Vec<Vm>,
}

/// A VM of a GPU.
#[derive(Debug)]
pub(super) struct Vm {
    pub(super) name: String,
    pub(super) device_uuid: String,
    pub(super) memory_limit: u64,
    pub(super) memory_used: u64,
    pub(super) weight: u64,
    pub(super) connected: u64,
    pub(super) sessions: u64,
    pub(super) gpu_time_ns: u64,
    pub(super) waited_ns: u64,
    pub(super) launches: u64,
    /// Bytes copied to and from the device.
    pub(super) copied: [u64; 2],
    pub(super) out_of_memory: u64,
    /// Sessions lost by violations, with their workers, and by operators.
    pub(super) lost: [u64; 3],
    pub(super) fallbacks: u64,
    pub(super) overruns: Overruns,
}

impl Gpu {
    /// Reads the slots of a GPU. Returns `None` if they cannot be read, which its arbiter finds too.
    pub(super) fn read(gpu: &SharedGpu) -> Option<Self> {
        let holders = gpu.share.holders().ok()?;
        // One name twice would make the whole answer worthless.
        let mut names = BTreeSet::new();
        let mut vms: Vec<Vm> = holders.iter().filter_map(Vm::read).collect();
        let found = vms.len();
        vms.retain(|vm| names.insert(vm.name.clone()));
        Some(Self {
            uuid: gpu.share.uuid().to_string(),
            number: gpu.number.map(|number| number.to_string()),
            memory: gpu.share.memory_bytes(),
            promised: promised_bytes(&holders),
            left_out: (found - vms.len()) as u64,
            vms,
        })
    }
}

impl Vm {
    /// Reads a slot. Returns `None` if only workers hold it still, or if another device takes it meanwhile.
    fn read(slot: &SlotView) -> Option<Self> {
        let figure = |figure| slot.figure(figure);
        let process = Some(figure(Figure::Process)).filter(|process| *process != 0 && slot.device_lives())?;
        let vm = Self {
            name: Some(slot.name()).filter(|name| !name.is_empty())?,
            device_uuid: slot.device_uuid().to_string(),
            memory_limit: figure(Figure::Promised),
            memory_used: figure(Figure::Used),
            weight: figure(Figure::Weight),
            connected: figure(Figure::Connected),
            sessions: figure(Figure::Sessions),
            gpu_time_ns: slot.gpu_time_ns(),
            waited_ns: slot.waited_ns(),
            launches: figure(Figure::Launches),
            copied: [Figure::CopiedIn, Figure::CopiedOut].map(figure),
            out_of_memory: figure(Figure::OutOfMemory),
            lost: [Figure::LostViolation, Figure::LostWorker, Figure::LostOperator].map(figure),
            fallbacks: slot.fallbacks(),
            overruns: slot.overruns(),
        };
        (figure(Figure::Process) == process).then_some(vm)
    }
}
