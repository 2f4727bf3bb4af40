//! Faults of the system: its sandboxes, the environment, the launcher's own libraries, the service.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use vgpu_artifacts::executable;
use vgpu_testbed::programs;

use super::super::patch::Patch;
use super::super::plan::{Era, Maker, When};
use super::ollama::{dlopen_hook, other_libcuda};

/// Directories for private directories of the launcher, separated by spaces.
const PLACES: &str = "/dev/shm /run /tmp /var/tmp";

/// Returns the offset of the library `soname` in the launcher's file, and its bytes.
fn embedded(launcher: &[u8], soname: &str) -> Result<(u64, Vec<u8>)> {
    let starts = memchr::memmem::find_iter(launcher, b"\x7fELF\x02\x01\x01").skip(1);
    for at in starts {
        let rest = &launcher[at..];
        let Ok(header) = goblin::elf::Elf::parse_header(rest) else { continue };
        // The linker writes the section headers last.
        let end = header.e_shoff as usize + usize::from(header.e_shnum) * usize::from(header.e_shentsize);
        let Some(bytes) = rest.get(..end) else { continue };
        if goblin::elf::Elf::parse(bytes).is_ok_and(|elf| elf.soname == Some(soname)) {
            return Ok((at as u64, bytes.to_vec()));
        }
    }
    bail!("the launcher does not hold {soname}")
}

/// Writes a copy of the launcher in which the library `soname` is patched.
fn damaged_launcher(to: &Path, soname: &str, how: fn(Patch) -> Result<Patch>) -> Result<()> {
    let launcher = programs::launcher()?;
    // Not in place: see `executable`.
    let patched = to.with_extension("patched");
    fs::copy(&launcher, &patched).context("copy the launcher")?;
    let (at, bytes) = embedded(&fs::read(&launcher)?, soname)?;
    how(Patch::of_bytes(bytes))?.write(&patched, at)?;
    executable::copy(&patched, to)?;
    fs::remove_file(&patched).context("remove the patched launcher")
}

/// Returns the number of bytes that the loader maps for libcuda's code.
fn code_of_libcuda() -> Result<u64> {
    let (_, bytes) = embedded(&fs::read(programs::launcher()?)?, "libcuda.so.1")?;
    Patch::of_bytes(bytes).code_bytes()
}

/// Makers in this file, by their names in the catalogue.
pub const MAKERS: &[(&str, Maker)] = &[
    ("no-way-to-map-code", |plan| {
        plan.sandbox.push("--memfd".to_owned());
        plan.mounts.push(format!(
            "for p in {PLACES}; do mount --bind $p $p && mount -o remount,bind,noexec $p; done
             mount --bind $PROGRAMS $PROGRAMS && mount -o remount,bind,exec $PROGRAMS"
        ));
    }),
    ("unit-refuses-code", |plan| {
        let service = plan.service();
        service.running = false;
        service.properties.push(("SystemCallFilter", "~memfd_create".to_owned()));
        service.properties.push(("NoExecPaths", PLACES.to_owned()));
    }),
    ("proc-not-mounted", |plan| plan.mounts.push("mount -t tmpfs none /proc".to_owned())),
    ("memory-files-must-not-be-executable", |plan| {
        // The setting belongs to the PID namespace.
        plan.pid_namespace = true;
        plan.mounts.push("echo 2 > /proc/sys/vm/memfd_noexec".to_owned());
    }),
    // ---- libraries
    ("no-place-for-the-services-user", |plan| {
        plan.era = Era::A;
        plan.names_bus = false;
        plan.mounts.push("mount --bind $BUS /sys".to_owned());
        plan.mounts.push("mount -t tmpfs -o mode=0755 none /dev/shm".to_owned());
        plan.mounts.push(
            "for p in /tmp /var/tmp; do mount --bind $p $p && mount -o remount,bind,ro $p; done".to_owned(),
        );
        plan.step(When::Served, |scene| {
            for name in ["resource0", "resource0_ro", "resource2", "resource2_wc"] {
                fs::set_permissions(scene.function(name), fs::Permissions::from_mode(0o666))?;
            }
            Ok(())
        });
        let service = plan.service();
        service.running = false;
        service.properties.push(("User", "nobody".to_owned()));
    }),
    ("c-library-too-old", |plan| {
        plan.step(When::Installed, |scene| {
            damaged_launcher(&scene.path("system/vgpu-run"), "libcuda.so.1", |patch| {
                patch.ask_for_newer("GLIBC_2.")
            })
        });
        plan.own_launcher = true;
    }),
    ("map-of-library-refused", |plan| {
        // Without the limit nothing is refused, and the case fails.
        if let Ok(bytes) = code_of_libcuda() {
            plan.sandbox.extend(["--exec-bytes".to_owned(), bytes.to_string()]);
        }
    }),
    // ---- environment
    ("no-device-visible", |plan| plan.set("CUDA_VISIBLE_DEVICES", "-1")),
    ("another-uuid-visible", |plan| {
        plan.set("CUDA_VISIBLE_DEVICES", "GPU-deadbeef-0000-4000-8000-000000000001");
    }),
    ("index-beyond-visible", |plan| plan.set("CUDA_VISIBLE_DEVICES", "7")),
    ("library-not-there", |plan| plan.set("OLLAMA_LLM_LIBRARY", "cuda_v11")),
    ("library-of-another-kind", |plan| plan.set("OLLAMA_LLM_LIBRARY", "vulkan")),
    ("backend-of-the-cpu", |plan| {
        plan.set("GGML_BACKEND_PATH", "$SCENE/usr/lib/ollama/libggml-cpu-x64.so");
    }),
    ("rows-split-without-buffers", |plan| plan.set("LLAMA_ARG_SPLIT_MODE", "row")),
    ("slots-shorter-than-a-prompt", |plan| plan.set("LLAMA_ARG_KV_UNIFIED_PER_SLOT", "1")),
    ("layers-kept-on-cpu", |plan| plan.set("LLAMA_ARG_N_GPU_LAYERS", "0")),
    ("managed-memory-asked-for", |plan| plan.set("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "1")),
    ("llama-server-below-a-prefix", |plan| plan.set("LLAMA_ARG_API_PREFIX", "/x")),
    ("loader-tells-all", |plan| plan.set("LD_DEBUG", "all")),
    ("foreign-preload-missing", |plan| plan.set("LD_PRELOAD", "/nonexistent/libforeign.so")),
    // ---- loader
    ("global-preload", |plan| {
        plan.step(When::Installed, |scene| {
            let (library, other) = (scene.path("system/libhook.so"), scene.path("system/libother.so"));
            other_libcuda(scene, &other)?;
            dlopen_hook(scene, &library, &other)?;
            Ok(fs::write(scene.path("system/ld.so.preload"), format!("{}\n", library.display()))?)
        });
        plan.mounts.push(
            "cp -a /etc $SCENE/system/etc && cp $SCENE/system/ld.so.preload $SCENE/system/etc/ && mount --bind \
             $SCENE/system/etc /etc"
                .to_owned(),
        );
    }),
];
