//! Links of the GPU that a VM gets: which GPU it is, and what prevents sharing it.

use vgpu_findings::size;

use crate::catalogue::{Finding, LinkId, cause};
use crate::nvidia::answers::HostGpu;
use crate::subject::{HostFacts, Subject, same_uuid};

/// Compute mode `NVML_COMPUTEMODE_PROHIBITED`.
const PROHIBITED: u32 = 2;
/// Compute modes `NVML_COMPUTEMODE_EXCLUSIVE_THREAD` and `NVML_COMPUTEMODE_EXCLUSIVE_PROCESS`.
const EXCLUSIVE: [u32; 2] = [1, 3];
/// First 15 bytes of the process names of MPS's server and control daemon.
const MPS: &str = "nvidia-cuda-mps";

/// Returns a line that describes a GPU.
fn line(gpu: &HostGpu) -> String {
    let memory = gpu.memory.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
    format!("{} {}{memory}", gpu.uuid, gpu.name)
}

/// Examines which GPU the VM gets.
pub fn gpu(subject: &Subject, known: &mut HostFacts) -> Finding {
    let lines: Vec<String> = known.gpus.iter().map(line).collect();
    let chosen = match (&subject.gpu, &known.gpus[..]) {
        (_, []) => {
            return Finding::fail(cause::gpu::NO_GPU, "the driver knows no GPU");
        }
        (None, [one]) => (one, None),
        (None, several) => {
            return Finding::fail(
                cause::gpu::GPU_AMBIGUOUS,
                format!("{} GPUs, and none is named", several.len()),
            )
            .details(lines);
        }
        (Some(uuid), gpus) => {
            let whole = gpus.iter().find(|gpu| same_uuid(&gpu.uuid, uuid)).map(|gpu| (gpu, None));
            let part = || {
                gpus.iter().find_map(|gpu| {
                    let instance = gpu.instances.iter().find(|one| same_uuid(&one.uuid, uuid))?;
                    Some((gpu, Some(instance)))
                })
            };
            let Some(found) = whole.or_else(part) else {
                return Finding::fail(
                    cause::gpu::GPU_ABSENT,
                    "no GPU of this host has the UUID that is named",
                )
                .details(lines);
            };
            found
        }
    };
    let (gpu, instance) = chosen;
    let memory = instance.map_or(gpu.memory, |instance| instance.memory);
    known.memory = memory;
    known.gpu = Some(gpu.clone());
    known.instance = instance.map(|instance| instance.uuid.clone());
    if let Some(memory) = memory.filter(|memory| *memory < subject.memory) {
        let found = format!("{} of {} are promised to guests", size(subject.memory), size(memory));
        return Finding::fail(cause::gpu::MEMORY_SHORT, found).details(lines);
    }
    let found = match instance {
        Some(instance) => format!("{}, instance {}", line(gpu), instance.uuid),
        None => line(gpu),
    };
    Finding::pass(LinkId::Gpu, found).details(gpu.pci.clone().map(|pci| format!("at {pci}")))
}

/// Returns the finding that skips a link because it needs a GPU and none was found.
fn unreached(link: LinkId) -> Finding {
    Finding::skip(link, "not reached (needs gpu)")
}

/// Examines whether the GPU has the memory beside what other VMs have been promised.
pub fn room(subject: &Subject, known: &mut HostFacts) -> Finding {
    let Some(gpu) = &known.gpu else { return unreached(LinkId::Room) };
    let Some(bytes) = known.memory else {
        return Finding::skip(LinkId::Room, "the driver does not tell the GPU's memory");
    };
    match subject.room.ask(known.instance.as_ref().unwrap_or(&gpu.uuid), bytes) {
        Ok(None) => Finding::pass(LinkId::Room, "the memory is promised to no other VM"),
        Ok(Some(why)) => Finding::fail(cause::room::PROMISED, why),
        Err(error) => Finding::unknown(LinkId::Room, error),
    }
}

/// Examines the compute mode.
pub fn compute_mode(_subject: &Subject, known: &mut HostFacts) -> Finding {
    let Some(gpu) = &known.gpu else { return unreached(LinkId::ComputeMode) };
    let (cause, found) = match gpu.compute_mode {
        None => return Finding::pass(LinkId::ComputeMode, "the GPU has no compute modes"),
        Some(PROHIBITED) => (cause::compute_mode::PROHIBITED, "prohibited"),
        Some(mode) if EXCLUSIVE.contains(&mode) => (cause::compute_mode::EXCLUSIVE_PROCESS, "exclusive"),
        Some(_) => return Finding::pass(LinkId::ComputeMode, "default"),
    };
    Finding::fail(cause, format!("the GPU's compute mode is {found}"))
        .expected("default")
        .with("gpu", &gpu.uuid)
}

/// Examines whether MPS runs.
pub fn mps(subject: &Subject, _known: &mut HostFacts) -> Finding {
    let processes = subject.root.processes();
    let found: Vec<String> = processes
        .iter()
        .filter(|process| process.name.starts_with(MPS))
        .map(|process| format!("{} {}", process.pid, process.arguments.join(" ")))
        .collect();
    if found.is_empty() {
        return Finding::pass(LinkId::Mps, "not running");
    }
    Finding::fail(cause::mps::RUNNING, "MPS runs on this host")
        .expected("no MPS on a GPU that is given to VMs")
        .details(found)
}

/// Examines whether MIG is on, and which instance the VM gets.
pub fn mig(_subject: &Subject, known: &mut HostFacts) -> Finding {
    let Some(gpu) = &known.gpu else { return unreached(LinkId::Mig) };
    match (gpu.mig, &known.instance) {
        (None, _) => Finding::pass(LinkId::Mig, "the GPU has no MIG"),
        (Some(false), _) => Finding::pass(LinkId::Mig, "off"),
        (Some(true), Some(instance)) => Finding::pass(LinkId::Mig, format!("the VM gets {instance}")),
        (Some(true), None) if gpu.instances.is_empty() => {
            Finding::fail(cause::mig::NO_INSTANCE, "MIG is on, and there is no instance")
                .with("gpu", &gpu.uuid)
        }
        (Some(true), None) => Finding::fail(cause::mig::WHOLE_GPU, "MIG is on, and no instance is named")
            .details(gpu.instances.iter().map(|instance| instance.uuid.clone())),
    }
}

/// Examines whether persistence mode is on.
pub fn persistence(_subject: &Subject, known: &mut HostFacts) -> Finding {
    let Some(gpu) = &known.gpu else { return unreached(LinkId::Persistence) };
    match gpu.persistence {
        None => Finding::pass(LinkId::Persistence, "the GPU does not say"),
        Some(true) => Finding::pass(LinkId::Persistence, "on"),
        Some(false) => Finding::warn(cause::persistence::OFF, "off").expected("on").with("gpu", &gpu.uuid),
    }
}

/// Examines whether this process may run beside the GPU.
pub fn numa(subject: &Subject, known: &mut HostFacts) -> Finding {
    let Some(gpu) = &known.gpu else { return unreached(LinkId::Numa) };
    let Some((node, near)) = gpu.pci.as_deref().and_then(|pci| subject.root.node(pci)) else {
        return Finding::pass(LinkId::Numa, "the host has one node");
    };
    let allowed = subject.root.allowed_cpus().unwrap_or_default();
    let common = allowed.iter().filter(|cpu| near.contains(cpu)).count();
    if common > 0 || allowed.is_empty() {
        return Finding::pass(
            LinkId::Numa,
            format!("GPU on node {node}, {common} CPUs of which may be used"),
        );
    }
    Finding::warn(cause::numa::REMOTE, format!("GPU on node {node}, none of whose CPUs may be used"))
        .expected("CPUs of the GPU's node")
        .with("node", node)
}
