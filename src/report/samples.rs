//! Sample reports for tests, with at least one failure of each link.

use std::time::Duration;

use super::CheckReport;
use crate::check::facts::{DeviceReport, Loser, ResolvedLibrary};
use crate::diagnosis::catalogue::LINKS;
use crate::diagnosis::{Finding, LinkId, cause, fix};

/// Returns failures of all links, with the remedies of the catalogue.
pub fn failures() -> Vec<Finding> {
    let fail =
        |cause, found: &str, details: &[&str]| Finding::fail(cause, found).details(details.iter().copied());
    vec![
        fail(
            cause::kernel::NO_EXECUTABLE_MAPPING,
            "neither memory files nor files in /dev/shm can be mapped for execution",
            &[
                "memory files: failed to map a memory file for execution: EPERM",
                "/dev/shm: files there cannot be mapped for execution",
            ],
        ),
        fail(
            cause::pci::DEVICE_ABSENT,
            "failed to find a VGPU-STUB device in /sys/bus/pci/devices",
            &["/sys/bus/pci/devices: 9 functions"],
        ),
        fail(
            cause::permission::DEVICE_PERMISSION,
            "as the user ollama: failed to use the device 0000:00:05.0: failed to open \
             /sys/bus/pci/devices/0000:00:05.0/resource0: Permission denied (os error 13)",
            &["user ollama (uid 998)", "/sys/bus/pci/devices/0000:00:05.0/resource0 mode 0600, owner 0:0"],
        )
        .with("folder", "/sys/bus/pci/devices/0000:00:05.0"),
        fail(
            cause::device::DEVICE_MUTE,
            "the registers of 0000:00:05.0 do not answer",
            &["the process that asked ended with exit code 124"],
        )
        .expected("an answer within a second"),
        fail(cause::window::NO_CHANNEL, "all 64 channels of the device are in use", &[]),
        fail(
            cause::host::BAD_FACTS,
            "0000:00:05.0: the device says that its compute capability is 0.0",
            &["cc_major: 0", "cc_minor: 0"],
        ),
        fail(
            cause::shims::SHIM_UNRESOLVED,
            "libcuda.so.1 needs GLIBC_2.34, which this system's C library lacks",
            &["/bin/true: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by /proc/712/fd/900)"],
        )
        .expected("glibc 2.17 or newer"),
        fail(cause::environment::VISIBLE_DEVICES, "CUDA_VISIBLE_DEVICES=-1 hides every device", &[])
            .with("variable", "CUDA_VISIBLE_DEVICES"),
        fail(
            cause::loader::OTHER_LIBRARY_WINS,
            "the loader gives a program /usr/lib/libcuda.so.1 for libcuda.so.1, not vgpu-run's library",
            &[],
        ),
        fail(
            cause::ollama::OLLAMA_MISSING,
            "there is no ollama on PATH",
            &["looked in /usr/local/bin, /usr/bin, /bin"],
        )
        .with("install", "curl -fsSL https://ollama.com/install.sh | sh"),
        fail(cause::backend::BACKEND_MISSING, "/usr/local/lib/ollama has no libggml-cuda.so", &[])
            .expected("cuda_v12/libggml-cuda.so or cuda_v13/libggml-cuda.so")
            .with("install", "curl -fsSL https://ollama.com/install.sh | sh"),
        Finding::unknown(LinkId::Init, "ggml_backend_init of cuda_v12/libggml-cuda.so returned null")
            .fix(fix::discovery::BUG)
            .details(["step: init", "stderr: (nothing)"]),
        fail(cause::agreement::UUID, "CUDA says GPU-1111, NVML says GPU-2222", &[]).expected("one UUID"),
        fail(
            cause::data_path::COPY_WRONG,
            "of 1048576 bytes 4096 came back changed, the first at 65536",
            &[],
        ),
        fail(cause::discovery::TIMED_OUT, "llama-server --list-devices did not end in 3.0 s", &[])
            .fix(fix::discovery::SLOW),
        fail(
            cause::service::NOT_WRAPPED,
            "ollama.service was not started by vgpu-run",
            &["unit file /etc/systemd/system/ollama.service"],
        )
        .fix(fix::service::WRAP)
        .with("command", "vgpu-run service install"),
        fail(
            cause::truth::FOUND_CPU,
            "ollama serve finds no GPU, and would compute on the CPU; the last link that holds is Ollama's discovery",
            &["level=INFO msg=\"inference compute\" id=cpu library=cpu"],
        ),
    ]
}

fn device() -> DeviceReport {
    DeviceReport {
        address: "0000:00:05.0".into(),
        name: "VGPU-STUB soft".into(),
        driver: "580.65.06".into(),
        cuda: 13000,
        capability: (6, 1),
        total: 8 << 30,
        free: 8 << 30,
        uuid: "GPU-1".into(),
    }
}

fn passed(link: LinkId) -> Finding {
    let finding = Finding::pass(link, "as it should be").detail("a line of evidence");
    Finding { elapsed: Duration::from_micros(120), ..finding }
}

fn all(findings: Vec<Finding>) -> CheckReport {
    CheckReport {
        findings,
        incomplete: Vec::new(),
        unanswered: Vec::new(),
        scarce: None,
        devices: vec![device()],
        libraries: vec![ResolvedLibrary {
            soname: "libcuda.so.1".into(),
            winner: Some("/proc/1/fd/900".into()),
            losers: vec![Loser { path: "/usr/lib/libcuda.so.1".into(), why: "preloaded after".into() }],
        }],
        versions: [("vgpu-run", "0.1.0".to_owned())].into(),
        only: Vec::new(),
    }
}

/// Returns the report of a walk that ends in `failure`: the links before it hold, and those that need it were
/// not reached.
pub fn report(failure: &Finding) -> CheckReport {
    let broken = failure.link;
    let mut failed = vec![broken];
    let mut findings = Vec::new();
    for link in LINKS {
        if link.id == broken {
            findings.push(failure.clone());
        } else if let Some(need) = link.needs.iter().find(|need| failed.contains(need)) {
            failed.push(link.id);
            findings.push(Finding::skip(link.id, format!("not reached (needs {})", need.as_str())));
        } else {
            findings.push(passed(link.id));
        }
    }
    all(findings)
}

/// Returns the report of a system on which everything works.
pub fn healthy() -> CheckReport {
    all(LINKS.iter().map(|link| passed(link.id)).collect())
}

/// Returns the report of a system with two warnings.
pub fn warnings() -> CheckReport {
    let mut report = healthy();
    for finding in &mut report.findings {
        if finding.link == LinkId::Window {
            let found = "256 MiB, uncached, writes 90 MB/s, reads 9 MB/s";
            *finding =
                Finding::warn(cause::window::WINDOW_SLOW, found).expected("a gigabyte per second and more");
        } else if finding.link == LinkId::Service {
            *finding = Finding::notice(LinkId::Service, "there is no service ollama.service");
        }
    }
    report
}

/// Returns the report of a check that ran out of time.
pub fn incomplete() -> CheckReport {
    let mut report = healthy();
    for finding in &mut report.findings {
        if finding.link >= LinkId::Discovery {
            *finding = Finding::skip(finding.link, "not reached (no time left)");
            report.incomplete.push(finding.link.as_str().to_owned());
        }
    }
    report
}
