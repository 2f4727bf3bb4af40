//! Tests only: reports to render, one failure of each link at least.

use std::time::Duration;

use super::Report;
use crate::check::facts::{DeviceReport, Library, Loser};
use crate::diagnosis::catalogue::LINKS;
use crate::diagnosis::{Finding, Fix, LinkId, cause};

/// A failure of each link.
pub fn failures() -> Vec<Finding> {
    let with = |finding: Finding, text: &str, command: Option<&str>, root: bool| {
        let fix = Fix { text: text.into(), command: command.map(str::to_owned), needs_root: root };
        Finding { fix: Some(fix), ..finding }
    };
    vec![
        with(
            Finding::fail(
                cause::kernel::NO_EXECUTABLE_MAPPING,
                "neither memory files nor any folder may be mapped for execution",
            )
            .detail("memory files: failed to map a memory file for execution: EPERM")
            .detail("/dev/shm: files there cannot be mapped for execution"),
            "Set XDG_RUNTIME_DIR to a folder of yours on a file system that is not mounted noexec, or allow it.",
            Some("mount -o remount,exec /dev/shm"),
            true,
        ),
        with(
            Finding::fail(
                cause::pci::DEVICE_ABSENT,
                "failed to find a VGPU-STUB device in /sys/bus/pci/devices",
            )
            .detail("/sys/bus/pci/devices: 9 functions"),
            "Have the host add the device to this VM. This lists it once it is there.",
            Some("lspci -d 10de:2331"),
            false,
        ),
        with(
            Finding::fail(
                cause::permission::DEVICE_PERMISSION,
                "as the user ollama: failed to use the device 0000:00:05.0: failed to open \
                 /sys/bus/pci/devices/0000:00:05.0/resource0: Permission denied (os error 13)",
            )
            .detail("user ollama (uid 998)")
            .detail("/sys/bus/pci/devices/0000:00:05.0/resource0 mode 0600, owner 0:0"),
            "Have the service start vgpu-run as root, which gives the device to the user and drops to it.",
            Some("systemctl edit ollama.service"),
            true,
        ),
        with(
            Finding::fail(cause::device::DEVICE_MUTE, "the registers of 0000:00:05.0 do not answer")
                .expected("an answer within a second")
                .detail("the process that asked ended with exit code 124"),
            "Is the VM's host overloaded, or its device process stopped or hung? Restart it.",
            None,
            false,
        ),
        with(
            Finding::fail(cause::window::NO_CHANNEL, "all 64 channels of the device are in use"),
            "End programs that use the device, or have the host give it more channels.",
            None,
            false,
        ),
        with(
            Finding::fail(cause::host::BAD_FACTS, "the device says that its compute capability is 0.0")
                .detail("cc_major: 0")
                .detail("cc_minor: 0"),
            "Update the device's host, or look at the GPU that it describes.",
            None,
            false,
        ),
        with(
            Finding::fail(
                cause::shims::SHIM_UNRESOLVED,
                "libcuda.so.1 needs GLIBC_2.34, which this system's C library lacks",
            )
            .expected("glibc 2.17 or newer")
            .detail(
                "/bin/true: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by /proc/712/fd/900)",
            ),
            "Use a release build of vgpu-run, whose libraries work with glibc 2.17 and newer, or a newer system.",
            None,
            false,
        ),
        with(
            Finding::fail(cause::environment::VISIBLE_DEVICES, "CUDA_VISIBLE_DEVICES=-1 hides every device"),
            "Unset CUDA_VISIBLE_DEVICES.",
            Some("unset CUDA_VISIBLE_DEVICES"),
            false,
        ),
        with(
            Finding::fail(
                cause::loader::OTHER_LIBRARY_WINS,
                "libcuda.so.1 is /usr/lib/x86_64-linux-gnu/libcuda.so.1, and not ours",
            ),
            "Take NVIDIA's driver off this VM, or start ollama without the script that puts it first.",
            None,
            true,
        ),
        with(
            Finding::fail(cause::ollama::OLLAMA_MISSING, "there is no ollama on PATH")
                .detail("looked in /usr/local/bin, /usr/bin, /bin"),
            "Install Ollama, or name it with --ollama PATH.",
            Some("curl -fsSL https://ollama.com/install.sh | sh"),
            true,
        ),
        with(
            Finding::fail(cause::backend::BACKEND_MISSING, "/usr/local/lib/ollama has no libggml-cuda.so")
                .expected("cuda_v12/libggml-cuda.so or cuda_v13/libggml-cuda.so"),
            "Install Ollama's release for Linux with its CUDA libraries.",
            None,
            true,
        ),
        with(
            Finding::unknown(LinkId::Init, "ggml_backend_init of cuda_v12/libggml-cuda.so returned null")
                .detail("step: init")
                .detail("stderr: (nothing)"),
            "Send what --bundle writes to whoever makes vgpu-run.",
            Some("vgpu-run check --bundle vgpu-run-check.tar.gz"),
            false,
        ),
        with(
            Finding::fail(cause::agreement::UUID, "CUDA says GPU-1111, NVML says GPU-2222")
                .expected("one UUID"),
            "Update the device's host.",
            None,
            false,
        ),
        with(
            Finding::fail(
                cause::data_path::COPY_WRONG,
                "of 1048576 bytes 4096 came back changed, the first at 65536",
            ),
            "Look at the device's host: its memory or its GPU is faulty.",
            None,
            false,
        ),
        with(
            Finding::fail(cause::discovery::TIMED_OUT, "llama-server --list-devices did not end in 3.0 s"),
            "Give this VM a second processor, or the host more of its time.",
            None,
            false,
        ),
        with(
            Finding::fail(cause::service::NOT_WRAPPED, "ollama.service starts /usr/local/bin/ollama serve")
                .detail("unit file /etc/systemd/system/ollama.service"),
            "Have the service start vgpu-run.",
            Some("systemctl edit ollama.service"),
            true,
        ),
        with(
            Finding::fail(
                cause::truth::FOUND_CPU,
                "ollama serve finds no GPU and computes on the CPU; the last link that holds is discovery",
            )
            .detail("level=INFO msg=\"inference compute\" id=cpu library=cpu"),
            "Its log says why, as far as Ollama says it at all; please report it, with what check found.",
            Some("vgpu-run check --bundle vgpu-run-check.tar.gz"),
            false,
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

fn all(findings: Vec<Finding>) -> Report {
    Report {
        findings,
        incomplete: Vec::new(),
        unanswered: Vec::new(),
        scarce: None,
        devices: vec![device()],
        libraries: vec![Library {
            soname: "libcuda.so.1".into(),
            winner: Some("/proc/1/fd/900".into()),
            losers: vec![Loser { path: "/usr/lib/libcuda.so.1".into(), why: "preloaded after".into() }],
        }],
        versions: [("vgpu-run", "0.1.0".to_owned())].into(),
        only: Vec::new(),
    }
}

/// A walk that ends in `failure`: the links before it hold, those that need it were not reached.
pub fn report(failure: &Finding) -> Report {
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

/// All is well.
pub fn healthy() -> Report {
    all(LINKS.iter().map(|link| passed(link.id)).collect())
}

/// All is well but for two things.
pub fn warnings() -> Report {
    let mut report = healthy();
    for finding in &mut report.findings {
        if finding.link == LinkId::Window {
            *finding = Finding::warn(cause::window::WINDOW_SLOW,
                "256 MiB, uncached, writes 90 MB/s, reads 9 MB/s",
            )
            .expected("a gigabyte per second and more")
            .fix("Have the host back the window by shared memory that the hypervisor maps into the VM, and make BAR2 prefetchable.");
        } else if finding.link == LinkId::Service {
            *finding = Finding::notice(LinkId::Service, "there is no service ollama.service");
        }
    }
    report
}

/// Time was over.
pub fn incomplete() -> Report {
    let mut report = healthy();
    for finding in &mut report.findings {
        if finding.link >= LinkId::Discovery {
            *finding = Finding::skip(finding.link, "not reached (no time left)");
            report.incomplete.push(finding.link.as_str().to_owned());
        }
    }
    report
}
