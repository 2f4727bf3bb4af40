//! Faults of the device and its host: the bus, the registers, the window, the executor.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::Bed;
use vgpu_wire::registers as reg;

use super::super::plan::{Maker, ScenePlan, When};
use super::super::scene::Scene;
use super::mediator;
use super::ollama::wrapper;

/// Number of lines before that of BAR2 in sysfs's `resource`.
const BAR2: usize = 2;

fn write(path: &Path, text: &str) -> Result<()> {
    // Some of these files are read-only, even for root on a read-only file system.
    fs::remove_file(path).with_context(|| format!("replace {}", path.display()))?;
    fs::write(path, text).with_context(|| format!("replace {}", path.display()))
}

/// Replaces the content of a sysfs file of the function.
fn file(plan: &mut ScenePlan, name: &'static str, text: &'static str) {
    plan.step(When::Served, move |scene| write(&scene.function(name), text));
}

/// Replaces a line of the function's `resource` file.
fn resource(plan: &mut ScenePlan, index: usize, text: &'static str) {
    plan.step(When::Served, move |scene| {
        let path = scene.function("resource");
        let old = fs::read_to_string(&path)?;
        let mut lines: Vec<&str> = old.lines().collect();
        lines[index] = text;
        write(&path, &(lines.join("\n") + "\n"))
    });
}

fn mode(scene: &Scene, names: &[&str], mode: u32) -> Result<()> {
    for name in names {
        let path = scene.function(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("set the mode of {}", path.display()))?;
    }
    Ok(())
}

const REGISTERS: [&str; 2] = ["resource0", "resource0_ro"];
const WINDOW: [&str; 2] = ["resource2", "resource2_wc"];

fn driver(plan: &mut ScenePlan, name: &'static str) {
    plan.step(When::Served, move |scene| {
        let folder = scene.bus().join("bus/pci/drivers").join(name);
        fs::create_dir_all(&folder)?;
        Ok(symlink(folder, scene.function("driver"))?)
    });
}

fn register(plan: &mut ScenePlan, offset: u32, value: u32) {
    plan.wrong(&format!("register:{offset:#x}={value:#x}"));
}

/// Has the bench's device report this driver version and text.
fn host_driver(plan: &mut ScenePlan, version: u32, text: &str) {
    plan.device_options.extend(["--driver".to_owned(), version.to_string()]);
    plan.device_options.extend(["--driver-text".to_owned(), text.to_owned()]);
}

fn second_device(plan: &mut ScenePlan) {
    let mut second = plan.devices[0].clone();
    "0000:00:06.0".clone_into(&mut second.address);
    "VGPU-STUB second".clone_into(&mut second.name);
    second.uuid = format!("{:032x}", rand::random::<u128>());
    second.memory_mib = 4096;
    plan.devices.push(second);
}

fn only(plan: &mut ScenePlan, backend: Backend, capability: &str) {
    plan.backends = vec![backend];
    plan.capability(capability);
}

/// Makers in this file, by their names in the catalogue.
pub const MAKERS: &[(&str, Maker)] = &[
    ("device-not-added", |plan| plan.devices.clear()),
    ("device-of-another-id", |plan| {
        file(plan, "device", "0x2330\n");
        file(plan, "modalias", "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00\n");
    }),
    ("sysfs-elsewhere", |plan| {
        plan.names_bus = false;
        plan.set("VGPU_SYSFS", "/nonexistent/vgpu");
    }),
    ("sysfs-not-mounted", |plan| {
        plan.names_bus = false;
        plan.mounts.push("mount -t tmpfs none /sys".to_owned());
    }),
    ("real-gpu-alone", |plan| {
        resource(plan, 0, "0x00000000fd000000 0x00000000fdffffff 0x0000000000040200");
    }),
    ("registers-without-address", |plan| {
        resource(plan, 0, "0x0000000000000000 0x0000000000000000 0x0000000000000000");
    }),
    ("window-without-address", |plan| {
        resource(plan, BAR2, "0x0000000000000000 0x0000000000000000 0x0000000000000000");
    }),
    ("decoding-off", |plan| {
        plan.nobody = true;
        file(plan, "enable", "0\n");
        plan.step(When::Served, |scene| {
            mode(scene, &REGISTERS, 0o666)?;
            mode(scene, &WINDOW, 0o666)
        });
    }),
    ("decoding-off-for-root", |plan| file(plan, "enable", "0\n")),
    ("bound-to-nouveau", |plan| driver(plan, "nouveau")),
    ("bound-to-vfio", |plan| driver(plan, "vfio-pci")),
    ("ids-in-words", |plan| file(plan, "modalias", "pci:nvidia\n")),
    // ---- permission
    ("user-may-not-open", |plan| plan.nobody = true),
    ("user-may-open-registers-only", |plan| {
        plan.nobody = true;
        plan.step(When::Served, |scene| mode(scene, &REGISTERS, 0o666));
    }),
    ("service-user-may-not-open", |plan| {
        let service = plan.service();
        service.running = false;
        service.properties.push(("User", "nobody".to_owned()));
    }),
    ("sysfs-read-only", |plan| {
        plan.mounts.push("mount --bind $BUS $BUS && mount -o remount,bind,ro $BUS".to_owned());
    }),
    ("unit-protects-kernel-tunables", |plan| {
        plan.names_bus = false;
        plan.mounts.push("mount --bind $BUS /sys".to_owned());
        let service = plan.service();
        service.running = false;
        service.properties.push(("ProtectKernelTunables", "yes".to_owned()));
    }),
    ("turn-file-of-root", |plan| {
        plan.version_1(&[]);
        plan.nobody = true;
        plan.step(When::Served, |scene| {
            mode(scene, &["resource0", "resource1"], 0o666)?;
            let path = scene.bus().join("vgpu_transport.lock");
            fs::write(&path, "")?;
            Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o600))?)
        });
    }),
    ("locked-down", |plan| {
        plan.step(When::Served, |scene| {
            let folder = scene.bus().join("kernel/security");
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("lockdown"), "none [integrity] confidentiality\n")?;
            let window = scene.function("resource2").display().to_string();
            let status = std::process::Command::new("chattr").args(["+i", &window]).status()?;
            scene.undo.push(format!("chattr -i {window}"));
            if status.success() { Ok(()) } else { anyhow::bail!("chattr +i {window}: {status}") }
        });
    }),
    ("window-is-a-loop", |plan| {
        plan.step(When::Served, |scene| {
            let path = scene.function("resource2");
            fs::remove_file(&path)?;
            Ok(symlink("resource2", path)?)
        });
    }),
    // ---- device
    ("host-killed", |plan| plan.step(When::Served, |scene| scene.bed()?.kill())),
    ("registers-all-ones", |plan| {
        for offset in (0..0x200).step_by(4) {
            register(plan, offset, u32::MAX);
        }
    }),
    ("second-device-without-host", |plan| {
        let mut second = plan.devices[0].clone();
        "0000:00:06.0".clone_into(&mut second.address);
        second.uuid = format!("{:032x}", rand::random::<u128>());
        plan.devices.push(second);
        plan.step(When::Served, |scene| {
            Ok(fs::remove_file(scene.bus().join("bus/pci/devices/0000:00:06.0/resource0"))?)
        });
    }),
    ("host-stopped", |plan| {
        plan.step(When::Served, |scene| scene.bed()?.stop());
    }),
    ("registers-of-something-else", |plan| {
        register(plan, reg::PROTOCOL_VER, 0);
        register(plan, reg::CAPABILITIES, 0);
    }),
    ("device-without-channels", |plan| register(plan, reg::V2_CHANNELS, 0)),
    ("host-of-protocol-1", |plan| {
        register(plan, reg::PROTOCOL_VER, reg::PROTOCOL_V1);
        register(plan, reg::CAPABILITIES, reg::CAP_BASIC | reg::CAP_CUDA);
    }),
    ("device-of-protocol-2-in-bars-of-1", |plan| plan.version_1(&["--protocol-register", "0x20000"])),
    ("mediator-hung", |plan| {
        plan.version_1(&[]);
        plan.step(When::Served, |scene| scene.bed()?.control("hold").map(drop));
    }),
    ("turn-not-given-back", |plan| {
        plan.version_1(&[]);
        plan.step(When::Served, |scene| {
            let mut command = Command::new("flock");
            command.arg(scene.bus().join("vgpu_transport.lock"));
            command.args(["sh", "-c", "echo ready; exec sleep infinity"]);
            scene.start_until(&mut command, "ready")
        });
    }),
    ("host-of-another-contract", |plan| register(plan, reg::V2_WIRE_VERSION, 9 << 16)),
    ("host-of-another-build", |plan| register(plan, reg::V2_DIGEST_LO, 0x0bad_0bad)),
    // ---- window
    ("window-not-there", |plan| {
        plan.step(When::Served, |scene| {
            fs::remove_file(scene.function("resource2_wc"))?;
            Ok(fs::remove_file(scene.function("resource2"))?)
        });
    }),
    ("window-too-short", |plan| {
        plan.step(When::Served, |scene| {
            for name in WINDOW {
                let path = scene.function(name);
                fs::remove_file(&path)?;
                fs::File::create(&path)?.set_len(1 << 20)?;
            }
            Ok(())
        });
    }),
    ("address-space-limited", |plan| {
        plan.device_options.extend(["--window".to_owned(), "4G".to_owned()]);
        plan.limits.push("ulimit -v 4000000".to_owned());
    }),
    ("channels-taken", |plan| {
        plan.device_options.extend(["--channels".to_owned(), "1".to_owned()]);
        plan.step(When::Served, |scene| scene.hold_session("capturing"));
    }),
    // ---- host
    ("host-without-gpu", |plan| register(plan, reg::V2_EXECUTOR, 0)),
    ("no-mediator", |plan| plan.version_1(&["--mediator", "/nonexistent/mediator.sock"])),
    ("mediator-quarantines", |plan| {
        mediator::behind(plan, |scene, socket| mediator::start(scene, socket, &["--quarantine", "0"]));
    }),
    ("owners-taken", |plan| mediator::behind(plan, mediator::without_room)),
    ("context-lost", |plan| mediator::behind(plan, mediator::without_context)),
    ("version-1", |plan| plan.version_1(&[])),
    ("version-1-without-pages", |plan| plan.version_1(&["--ram", "1M"])),
    ("two-devices-of-one-address-range", |plan| {
        let mut second = plan.devices[0].clone();
        "0000:00:06.0".clone_into(&mut second.address);
        second.uuid = format!("{:032x}", rand::random::<u128>());
        plan.device_options.extend(["--address-range", "44"].map(str::to_owned));
        plan.step(When::Served, move |scene| {
            scene.add_bed(Bed::start_with("soft", &[second], &["--address-range", "44"])?)
        });
    }),
    ("address-space-below-a-devices", |plan| plan.limits.push("ulimit -v 500000000".to_owned())),
    ("device-too-small", |plan| plan.devices[0].memory_mib = 640),
    ("device-too-small-behind-a-script", |plan| {
        plan.devices[0].memory_mib = 520;
        wrapper(plan, "exec \"$OLLAMA\" \"$@\"");
    }),
    ("small-device-with-one-layer", |plan| {
        plan.devices[0].memory_mib = 300;
        plan.set("LLAMA_ARG_N_GPU_LAYERS", "1");
    }),
    ("two-devices", second_device),
    ("memory-of-one-of-two-taken", |plan| {
        second_device(plan);
        plan.devices[0].memory_mib = 2048;
        plan.step(When::Served, |scene| scene.hold_session("full"));
    }),
    ("facts-empty", |plan| plan.wrong("facts:zero")),
    ("facts-without-capability", |plan| plan.wrong("facts:no-capability")),
    ("facts-without-driver", |plan| plan.wrong("facts:no-driver")),
    ("memory-taken", |plan| {
        plan.devices[0].memory_mib = 2048;
        plan.step(When::Served, |scene| scene.hold_session("full"));
    }),
    ("sessions-refused", |plan| plan.wrong("open:refuse")),
    ("messages-not-carried-out", |plan| {
        plan.step(When::Served, |scene| scene.bed()?.control("hold").map(drop));
    }),
    // ---- agreement
    ("two-devices-of-one-uuid", |plan| {
        let mut second = plan.devices[0].clone();
        "0000:00:06.0".clone_into(&mut second.address);
        plan.devices.push(second);
    }),
    ("driver-535", |plan| {
        plan.backends = vec![Backend::Cuda12];
        host_driver(plan, 12_020, "535.104.05");
    }),
    ("driver-550-on-pascal", |plan| {
        only(plan, Backend::Cuda12, "6.1");
        host_driver(plan, 12_040, "550.54.14");
    }),
    ("ptx-newer-than-driver", |plan| {
        // The backend has machine code for 8.6.
        plan.capability("8.0");
        host_driver(plan, 13_000, "580.65.06");
    }),
    ("cuda13-on-driver-12", |plan| host_driver(plan, 12_040, "580.65.06")),
    ("cuda12-on-driver-11", |plan| {
        plan.backends = vec![Backend::Cuda12];
        host_driver(plan, 11_080, "580.65.06");
    }),
    ("device-too-old-for-backend", |plan| plan.capability("6.1")),
    ("capability-not-listed", |plan| only(plan, Backend::Cuda12, "6.2")),
    // ---- data path
    ("allocations-fail", |plan| plan.wrong("MemAlloc:fail=2")),
    ("copies-bring-nothing", |plan| plan.executor = "null"),
    ("copies-bring-something-else", |plan| plan.wrong("CopyIn:flip")),
    ("launches-fail", |plan| plan.wrong("Launch:fail=700")),
    ("launches-do-nothing", |plan| plan.wrong("Launch:drop")),
    ("products-not-computed", |plan| plan.wrong("Gemm:drop")),
    ("session-ends-at-launch", |plan| plan.wrong("Launch:lose")),
    ("launch-never-ends", |plan| plan.wrong("Launch:hang")),
    ("copies-answer-an-error", |plan| plan.wrong("CopyIn:fail=214")),
];
