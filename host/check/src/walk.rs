//! Examination of the chain in order. A link is examined only if the links that it needs hold.

use std::time::Instant;

use vgpu_findings::finding::unmet;

use crate::catalogue::{Finding, LINKS, LinkId};
use crate::links::{driver, gpu, host, vm};
use crate::subject::{HostFacts, Subject};

/// Links that concern NVIDIA's driver and the GPU.
const NVIDIA: [LinkId; 10] = [
    LinkId::Driver,
    LinkId::Gpu,
    LinkId::Room,
    LinkId::ComputeMode,
    LinkId::Mps,
    LinkId::Mig,
    LinkId::Persistence,
    LinkId::Cublas,
    LinkId::Memlock,
    LinkId::Numa,
];

/// Examines all links in order.
pub async fn walk(subject: &Subject, known: &mut HostFacts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for link in LINKS {
        let begin = Instant::now();
        let mut finding = if !subject.cuda && NVIDIA.contains(&link.id) {
            Finding::skip(link.id, "the executor needs no GPU")
        } else if let Some(need) = unmet(link.id, &findings) {
            Finding::skip(link.id, format!("not reached (needs {})", need.as_str()))
        } else {
            examine(link.id, subject, known).await
        };
        finding.elapsed = begin.elapsed();
        findings.push(finding);
    }
    findings
}

async fn examine(link: LinkId, subject: &Subject, known: &mut HostFacts) -> Finding {
    match link {
        LinkId::Driver => driver::driver(subject, known).await,
        LinkId::Gpu => gpu::gpu(subject, known),
        LinkId::Room => gpu::room(subject, known),
        LinkId::ComputeMode => gpu::compute_mode(subject, known),
        LinkId::Mps => gpu::mps(subject, known),
        LinkId::Mig => gpu::mig(subject, known),
        LinkId::Persistence => gpu::persistence(subject, known),
        LinkId::Cublas => driver::cublas(subject, known).await,
        LinkId::Memlock => host::memlock(subject, known),
        LinkId::HugePages => host::huge_pages(subject, known),
        LinkId::Numa => gpu::numa(subject, known),
        LinkId::Socket => host::socket(subject, known),
        LinkId::Qemu => vm::qemu(subject, known).await,
        LinkId::Vm => vm::vm(subject, known),
    }
}
