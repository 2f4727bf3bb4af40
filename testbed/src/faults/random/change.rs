//! Random changes of a working system. Some break it and some do not; the expected verdict is the behaviour
//! of the server.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::Bed;

use super::super::plan::{ScenePlan, When};
use super::super::scene::Scene;
use super::super::scene::install::{own_copy, script};
use super::super::settings::Era;
use super::made::{Made, pick};
use super::{start, surroundings};

/// Category of a random change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Changes of the modes of files and directories.
    Permissions,
    /// Changes of process limits.
    Limits,
    /// Changes of environment variables.
    Environment,
    /// Changes of Ollama's files, which are moved, truncated or replaced.
    Files,
    /// Additional, stopped or killed processes.
    Processes,
    /// Changes of the values of the server's own variables.
    Values,
    /// Scripts between the launcher and the program.
    Scripts,
    /// Filters that answer a system call.
    Calls,
    /// Namespaces, clocks, and files of the system.
    Surroundings,
    /// Files of every kind in the home.
    Home,
    /// Changes of the devices, which are small, slow, several, restarted or of other compute capabilities.
    Devices,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 11] = [
        Self::Permissions,
        Self::Limits,
        Self::Environment,
        Self::Files,
        Self::Processes,
        Self::Devices,
        Self::Values,
        Self::Scripts,
        Self::Calls,
        Self::Surroundings,
        Self::Home,
    ];

    /// Adds a random change of this family to the plan. `real` means that a real Ollama will compute.
    pub fn draw(self, plan: &mut ScenePlan, made: &Made, rng: &mut StdRng, real: bool) {
        match self {
            Self::Permissions => permissions(plan, made, rng),
            Self::Limits => limits(plan, made, rng),
            Self::Environment => environment(plan, made, rng),
            Self::Files => files(plan, made, rng),
            Self::Processes => processes(plan, made, rng),
            Self::Devices => devices(plan, made, rng, real),
            Self::Values => start::value(plan, made, rng),
            Self::Scripts => start::wrapper(plan, made, rng),
            Self::Calls => surroundings::call(plan, made, rng),
            Self::Surroundings => surroundings::system(plan, made, rng),
            Self::Home => surroundings::home(plan, made, rng),
        }
    }
}

/// Adds a step with a random generator of its own, which does not depend on other draws.
fn step(
    plan: &mut ScenePlan,
    rng: &mut StdRng,
    when: When,
    take: impl FnOnce(&mut Scene, &mut StdRng) -> Result<()> + 'static,
) {
    let mut own = StdRng::seed_from_u64(rng.random());
    plan.step(when, move |scene| take(scene, &mut own));
}

/// Returns all files and directories below a directory in a reproducible order. Symlinks are not followed.
fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if !path.symlink_metadata()?.is_dir() {
            continue;
        }
        let entries = fs::read_dir(&path).with_context(|| format!("list {}", path.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.sort();
        found.extend(paths);
    }
    Ok(found)
}

/// Returns a random file or directory of Ollama: its program or an entry of its library directory.
fn of_ollama(scene: &Scene, rng: &mut StdRng, wanted: impl Fn(&Path) -> bool) -> Result<PathBuf> {
    let mut paths = below(&scene.path("usr"))?;
    paths.retain(|path| wanted(path));
    // The CPU backends are many and similar, so one of them is enough.
    let mut of_cpu = false;
    paths.retain(|path| {
        let cpu = path.to_string_lossy().contains("libggml-cpu-");
        !cpu || !std::mem::replace(&mut of_cpu, true)
    });
    Ok(pick(rng, &paths).clone())
}

fn shown(scene: &Scene, path: &Path) -> String {
    path.strip_prefix(scene.path("")).unwrap_or(path).display().to_string()
}

/// Runs check and server as an unprivileged user, who gets access to the device.
fn nobody(plan: &mut ScenePlan) {
    if std::mem::replace(&mut plan.nobody, true) {
        return;
    }
    plan.step(When::Served, |scene| {
        for entry in fs::read_dir(scene.function(""))? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("resource")) {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
            }
        }
        Ok(())
    });
}

fn permissions(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    if rng.random_bool(0.8) {
        nobody(plan);
    }
    let device = rng.random_bool(0.25);
    let mode = *pick(rng, &[0o000, 0o400, 0o444, 0o555, 0o600, 0o644, 0o666, 0o700, 0o711, 0o744, 0o755]);
    let (made, when) = (made.clone(), if device { When::Served } else { When::Installed });
    let user = if plan.nobody { "nobody" } else { "root" };
    step(plan, rng, when, move |scene, rng| {
        let path = if device {
            // A device of version 1 has other files.
            let mut files = below(&scene.function(""))?;
            files.retain(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("resource"))
            });
            pick(rng, &files).clone()
        } else {
            of_ollama(scene, rng, |path| !path.is_symlink())?
        };
        if path.is_file() && !device {
            own_copy(&path)?;
        }
        made.record(format!("{} has mode {mode:03o}, for {user}", shown(scene, &path)));
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("set the mode of {}", path.display()))
    });
}

fn limits(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    // A number between these, of any magnitude.
    let mut between = |low: f64, high: f64| (low * (high / low).powf(rng.random::<f64>())) as u64;
    let (option, value) = match between(1.0, 9.0) {
        1 => ("v", between(60e3, 60e6)),
        // With fewer descriptors a check cannot tell which program is the first that lacks one.
        2 => ("n", between(48.0, 4096.0)),
        3 => ("f", between(1.0, 1e6)),
        4 => ("s", between(64.0, 1e6)),
        5 => ("d", between(1e3, 8e6)),
        6 => ("l", between(1.0, 8e6)),
        7 => ("t", between(1.0, 60.0)),
        _ => ("c", 0),
    };
    made.record(format!("ulimit -{option} {value}"));
    plan.limits.push(format!("ulimit -{option} {value}"));
}

/// Environment variables with values that people give them; `$SCENE` stands for the scene's directory.
const VARIABLES: &[(&str, &[&str])] = &[
    ("CUDA_VISIBLE_DEVICES", &["", "0", "-1", "1", "0,1", "0,0", "GPU-0", "all", "none", "NoDevFiles"]),
    ("NVIDIA_VISIBLE_DEVICES", &["void", "none", "all"]),
    ("CUDA_DEVICE_ORDER", &["PCI_BUS_ID", "FASTEST_FIRST"]),
    ("CUDA_LAUNCH_BLOCKING", &["1"]),
    ("LD_LIBRARY_PATH", &["/nonexistent", "", "$SCENE/usr/lib/ollama", "$SCENE/usr/lib/ollama/cuda_v13"]),
    ("LD_PRELOAD", &["/nonexistent/libjemalloc.so.2", "$SCENE/home", "libm.so.6", "/etc/passwd"]),
    ("LD_BIND_NOW", &["1"]),
    ("OLLAMA_LLM_LIBRARY", &["", "cuda_v12", "cuda_v13", "cpu", "cpu_avx2", "cuda"]),
    ("OLLAMA_LIBRARY_PATH", &["/nonexistent", "$SCENE/usr/lib/ollama"]),
    ("OLLAMA_VULKAN", &["0", "1"]),
    ("OLLAMA_DEBUG", &["0", "1", "2"]),
    ("OLLAMA_GPU_OVERHEAD", &["0", "536870912", "99999999999"]),
    ("OLLAMA_FLASH_ATTENTION", &["1", "0"]),
    ("OLLAMA_CONTEXT_LENGTH", &["2048", "131072"]),
    ("OLLAMA_NUM_PARALLEL", &["1", "8"]),
    ("GGML_BACKEND_PATH", &["", "/nonexistent/libggml-cuda.so", "$SCENE/usr/lib/ollama/libggml-base.so"]),
    ("GGML_CUDA_DISABLE_GRAPHS", &["1"]),
    ("GGML_CUDA_ENABLE_UNIFIED_MEMORY", &["1"]),
    ("GGML_CUDA_NO_PINNED", &["1"]),
    ("LLAMA_ARG_N_GPU_LAYERS", &["0", "1", "999"]),
    ("LLAMA_ARG_DEVICE", &["none", "CUDA0", "CUDA7"]),
    ("LLAMA_ARG_FIT", &["off"]),
    // Of no directory that root could create: the server would leave its key there.
    ("HOME", &["/proc/nonexistent", "$SCENE"]),
    ("TMPDIR", &["/nonexistent", "$SCENE/home"]),
    ("GOMAXPROCS", &["1"]),
    ("GODEBUG", &["madvdontneed=1"]),
    ("GOMEMLIMIT", &["16MiB"]),
    ("MALLOC_ARENA_MAX", &["1"]),
    ("VGPU_LOG", &["off", "trace"]),
    ("VGPU_SYSFS", &["/nonexistent", "/sys"]),
    ("PATH", &["$SCENE/path", "$SCENE/path:/nonexistent"]),
    ("LANG", &["xx_YY.UTF-8"]),
];

fn environment(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    let (name, values) = pick(rng, VARIABLES);
    let value = pick(rng, values);
    made.record(format!("{name}={value:?}"));
    plan.environment.retain(|(other, _)| other != name);
    plan.set(name, *value);
}

fn files(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    let made = made.clone();
    step(plan, rng, When::Installed, move |scene, rng| {
        let how = rng.random_range(0..9);
        let path = of_ollama(scene, rng, |path| how < 2 || !path.is_dir())?;
        let place = shown(scene, &path);
        let away = path.with_extension("away");
        match how {
            0 => fs::rename(&path, &away).map(|()| made.record(format!("{place} moved away")))?,
            1 => {
                fs::rename(&path, &away)?;
                symlink("/nonexistent", &path)?;
                made.record(format!("{place} leads nowhere"));
            }
            2 => {
                fs::rename(&path, &away)?;
                fs::create_dir(&path)?;
                made.record(format!("{place} is a folder"));
            }
            3 => {
                let percent = rng.random_range(0..100);
                own_copy(&path)?;
                let file = fs::OpenOptions::new().write(true).open(&path)?;
                file.set_len(file.metadata()?.len() / 100 * percent)?;
                made.record(format!("{place} cut off at {percent} %"));
            }
            4 => {
                fs::rename(&path, &away)?;
                fs::write(&path, "")?;
                made.record(format!("{place} is empty"));
            }
            5 => {
                own_copy(&path)?;
                let mut head = [0; 4096];
                rng.fill(&mut head);
                let file = fs::OpenOptions::new().write(true).open(&path)?;
                std::os::unix::fs::FileExt::write_all_at(&file, &head, 0)?;
                made.record(format!("{place} begins with other bytes"));
            }
            6 => {
                fs::rename(&path, &away)?;
                script(&path, "exit 1")?;
                made.record(format!("{place} is a script that fails"));
            }
            7 => {
                fs::rename(&path, &away)?;
                script(&path, "exec sleep 1000")?;
                made.record(format!("{place} is a script that hangs"));
            }
            _ => {
                let other = of_ollama(scene, rng, |other| other.is_file() && other != path)?;
                // Copied before the removal, because the other file may be a link to it.
                let copy = path.with_extension("other");
                fs::copy(&other, &copy)?;
                fs::rename(&path, &away)?;
                fs::rename(&copy, &path)?;
                made.record(format!("{place} is a copy of {}", shown(scene, &other)));
            }
        }
        Ok(())
    });
}

fn processes(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    let (words, when): (&str, When) = *pick(
        rng,
        &[
            ("the host is stopped", When::Served),
            ("the host is killed", When::Served),
            ("another program holds a session", When::Running),
            ("another program holds all memory", When::Running),
            ("another program sends messages without end", When::Running),
            ("another program has a kernel running without end", When::Running),
            ("another server runs, with a model", When::Running),
            ("another server runs without the launcher", When::Running),
        ],
    );
    made.record(words);
    step(plan, rng, when, move |scene, _| match words {
        "the host is stopped" => scene.bed()?.stop(),
        "the host is killed" => scene.bed()?.kill(),
        "another program holds a session" => scene.hold_session("hungry"),
        "another program holds all memory" => scene.hold_session("full"),
        "another program sends messages without end" => scene.hold_session("message"),
        "another program has a kernel running without end" => scene.hold_session("launching"),
        "another server runs, with a model" => scene.serve_besides(true),
        _ => scene.serve_besides(false),
    });
}

fn devices(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng, real: bool) {
    match rng.random_range(0..8) {
        0 | 1 => {
            let mib = *pick(rng, &[1, 2, 8, 64, 200, 300, 460, 520, 600, 1024, 30_000]);
            made.record(format!("the device has {mib} MiB"));
            plan.devices.iter_mut().for_each(|device| device.memory_mib = mib);
        }
        2 | 3 => {
            // In the first era a server accepts any device and only a kernel fails; a stand-in runs no
            // kernel.
            let all: &[&str] = match (plan.era, plan.backends.first()) {
                // A real server needs a device whose kernels the executor can run.
                _ if real => &["6.1", "6.2", "12.0"],
                (Era::A, Some(backend)) => backend.capabilities(),
                _ => &["5.0", "6.1", "6.2", "7.0", "7.5", "8.0", "8.9", "9.0", "12.0"],
            };
            let cc = *pick(rng, all);
            made.record(format!("the device has compute capability {cc}"));
            plan.capability(cc);
        }
        4 => {
            made.record("two devices in one process");
            let mut second = plan.devices[0].clone();
            "0000:00:06.0".clone_into(&mut second.address);
            second.uuid = format!("{:032x}", rng.random::<u128>());
            plan.devices.push(second);
        }
        5 => {
            made.record("two devices of two hosts");
            let mut second = plan.devices[0].clone();
            "0000:00:07.0".clone_into(&mut second.address);
            second.uuid = format!("{:032x}", rng.random::<u128>());
            let executor = plan.executor;
            plan.step(When::Served, move |scene| scene.add_bed(Bed::start_with(executor, &[second], &[])?));
        }
        6 => {
            made.record("the host was restarted");
            plan.step(When::Running, |scene| {
                scene.bed()?.kill()?;
                scene.bed()?.restart()
            });
        }
        _ => {
            made.record("the device speaks version 1");
            plan.version_1(&[]);
        }
    }
}

/// Draws the system to be changed: an era and backends with code for the device.
pub fn system(plan: &mut ScenePlan, rng: &mut StdRng) {
    plan.era = *pick(rng, &[Era::A, Era::B, Era::C]);
    let systems: [(&[Backend], &str); 3] =
        [(&[Backend::Cuda13], "8.6"), (&[Backend::Cuda12], "6.1"), (&Backend::ALL, "7.5")];
    let (backends, cc) = *pick(rng, &systems);
    plan.backends = backends.to_vec();
    plan.capability(cc);
}
