//! Check of whether this host can give its GPU to a VM: a chain of links from NVIDIA's driver to the VM's
//! memory, each with the causes that break it and their remedies. The output looks like that of the guest's
//! `check`.
//!
//! ```text
//!  report            for people and for programs
//!  walk              the links in their order
//!  links             driver, gpu, host, vm
//!  nvidia            what libcuda, NVML and cuBLAS say, asked in a process of its own
//!  root, options     what /proc and /sys say; QEMU's command line
//!  accounts          users and groups, and as whom libvirt runs QEMU
//!  subject           what is checked
//!  catalogue
//! ```
//!
//! All queries of NVIDIA's libraries are made in a child process, because they may hang or crash.

mod accounts;
mod catalogue;
mod links;
mod nvidia;
mod options;
mod report;
mod root;
mod subject;
mod walk;

pub use accounts::qemu_group;
pub use catalogue::LinkId;
pub use links::host::makeable;
pub use nvidia::ask::answer;
pub use report::HostReport;
pub use root::Root;
pub use subject::{Room, Subject};

/// Examines a host. `version` is the version of the calling program.
///
/// # Errors
/// The system has no thread that can wait for children.
pub fn check(subject: &Subject, version: &str) -> std::io::Result<HostReport> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut known = subject::HostFacts::default();
    let findings = runtime.block_on(walk::walk(subject, &mut known));
    Ok(HostReport::new(subject, &known, findings, version))
}

/// Returns the list of the links and of what each needs. If `verbose`, their causes are listed too.
pub fn list(verbose: bool) -> String {
    vgpu_findings::human::list::<LinkId>(verbose)
}
