//! Faults of Ollama's files: the program, its library directory, its backends.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use vgpu_artifacts::executable;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::programs;

use super::super::patch::Patch;
use super::super::plan::{Era, Maker, ScenePlan, When};
use super::super::scene::Scene;
use super::super::scene::install::{own_copy, script};

/// Machine code of an undefined instruction, with which functions are overwritten.
const UNDEFINED: [u8; 2] = [0x0f, 0x0b];
const LOOP: [u8; 2] = [0xeb, 0xfe];
const RETURN_NULL: [u8; 3] = [0x31, 0xc0, 0xc3];
const EXIT: [u8; 9] = [0x31, 0xff, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05];
/// Offset of the file's class in an ELF header.
const CLASS: u64 = 4;
const CLASS_32: u8 = 1;
const MACHINE: u64 = 18;
const MACHINE_AARCH64: u16 = 183;
const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
const MUSL: &[u8] = b"/lib/ld-musl-x86_64.so.1\0\0\0\0";

pub fn installed(plan: &mut ScenePlan, step: impl FnOnce(&mut Scene) -> Result<()> + 'static) {
    plan.step(When::Installed, step);
}

/// Overwrites bytes of Ollama's program.
fn program(plan: &mut ScenePlan, at: u64, bytes: &'static [u8]) {
    installed(plan, move |scene| {
        let file = fs::OpenOptions::new().write(true).open(scene.ollama())?;
        Ok(file.write_all_at(bytes, at)?)
    });
}

/// Compiles the C code `source` with `flags` to the file `to`.
pub fn compile(scene: &Scene, source: &str, flags: &[&str], to: &Path) -> Result<()> {
    let file = scene.path("system/source.c");
    fs::write(&file, source)?;
    let output = Command::new("cc").args(flags).arg("-o").arg(to).arg(&file).output().context("run cc")?;
    if !output.status.success() {
        bail!("cc: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Compiles another library with the name of the driver's.
pub fn other_libcuda(scene: &Scene, to: &Path) -> Result<()> {
    const SOURCE: &str = "int cuInit(unsigned flags) { return flags ? 1 : 100; }\n\
                          int cuDriverGetVersion(int *version) { *version = 12080; return 0; }\n\
                          int cuDeviceGetCount(int *count) { *count = 0; return 0; }\n";
    compile(scene, SOURCE, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"], to)
}

/// Compiles a libcuda that initialises and reports no device, after which an Ollama of the first era stops
/// searching.
fn libcuda_without_devices(scene: &Scene, to: &Path) -> Result<()> {
    const SOURCE: &str = "int cuInit(unsigned flags) { return flags; }\n\
        int cuDriverGetVersion(int *version) { *version = 12080; return 0; }\n\
        int cuDeviceGetCount(int *count) { *count = 0; return 0; }\n\
        #define NONE(name) int name(void) { return 100; }\n\
        NONE(cuDeviceGet) NONE(cuDeviceGetAttribute) NONE(cuDeviceGetUuid) NONE(cuDeviceGetName) NONE(cuDeviceGetPCIBusId)\n\
        NONE(cuDeviceTotalMem_v2) NONE(cuCtxCreate_v3) NONE(cuMemGetInfo_v2) NONE(cuCtxDestroy)\n";
    compile(scene, SOURCE, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"], to)
}

/// Compiles a library whose `dlopen` returns `other` in place of the driver's library.
pub fn dlopen_hook(scene: &Scene, to: &Path, other: &Path) -> Result<()> {
    let source = format!(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <string.h>\n\
         void *dlopen(const char *name, int flags) {{\n\
         static void *(*real)(const char *, int);\n\
         if (!real) *(void **)&real = dlsym(RTLD_NEXT, \"dlopen\");\n\
         return real(name && strstr(name, \"libcuda.so\") ? \"{}\" : name, flags); }}\n",
        other.display()
    );
    compile(scene, &source, &["-shared", "-fPIC", "-ldl"], to)
}

/// Compiles code that requests from the driver the private table for NVIDIA's runtime, as the runtime that
/// nvcc links in does.
fn private_tables(scene: &Scene, flags: &[&str], to: &Path) -> Result<()> {
    const SOURCE: &str = "#include <dlfcn.h>\n\
        static const unsigned char id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,\n\
        0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};\n\
        int start(void) {\n\
        void *driver = dlopen(\"libcuda.so.1\", RTLD_NOW);\n\
        int (*table)(const void **, const void *) = driver ? dlsym(driver, \"cuGetExportTable\") : 0;\n\
        const void *found = 0;\n\
        return table && !table(&found, id) && found; }\n\
        int main(void) { return !start(); }\n";
    compile(scene, SOURCE, &[flags, &["-ldl"]].concat(), to)
}

/// Fills the service's log with the messages of a program whose kernel the host refuses because of an unknown
/// instruction.
fn refused_kernel(scene: &mut Scene) -> Result<()> {
    const SOURCE: &str = "#include <dlfcn.h>\n\
        static const char code[] = \".version 7.0\\n.target sm_50\\n.address_size 64\\n\"\n\
        \".visible .entry wrong() { frobnicate.u32 %r1, 7; ret; }\";\n\
        int main(void) {\n\
        void *driver = dlopen(\"libcuda.so.1\", RTLD_NOW), *context, *module, *kernel;\n\
        int (*init)(int) = dlsym(driver, \"cuInit\");\n\
        int (*retain)(void **, int) = dlsym(driver, \"cuDevicePrimaryCtxRetain\");\n\
        int (*enter)(void *) = dlsym(driver, \"cuCtxSetCurrent\");\n\
        int (*load)(void **, const void *) = dlsym(driver, \"cuModuleLoadData\");\n\
        int (*get)(void **, void *, const char *) = dlsym(driver, \"cuModuleGetFunction\");\n\
        int (*launch)(void *, int, int, int, int, int, int, int, void *, void **, void **) = dlsym(driver, \"cuLaunchKernel\");\n\
        if (init(0) || retain(&context, 0) || enter(context) || load(&module, code) || get(&kernel, module, \"wrong\")) return 2;\n\
        return launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) == 218 ? 0 : 3; }\n";
    let program = scene.path("system/refused");
    compile(scene, SOURCE, &["-ldl"], &program)?;
    let log = fs::OpenOptions::new().append(true).open(scene.path("system/log"))?;
    let status = Command::new(programs::launcher()?)
        .arg("--")
        .arg(&program)
        .env("VGPU_SYSFS", scene.bus())
        .env("VGPU_LOG", "error")
        .env_remove("VGPU_LOG_FILE")
        .stderr(log)
        .status()
        .context("run a program with a kernel that is refused")?;
    if status.success() { Ok(()) } else { bail!("the kernel is not refused: {status}") }
}

/// Replaces the program on PATH by a script, which finds the program as $OLLAMA.
pub fn wrapper(plan: &mut ScenePlan, text: &'static str) {
    installed(plan, move |scene| {
        let path = scene.path("path/ollama");
        fs::remove_file(&path)?;
        let (program, folder) = (scene.ollama(), scene.path("system"));
        script(&path, &format!("OLLAMA={}\nSYSTEM={}\n{text}", program.display(), folder.display()))
    });
}

/// Returns the backend's file, for plans with a single backend.
fn backend(scene: &Scene) -> std::path::PathBuf {
    let twelve = scene.library("cuda_v12/libggml-cuda.so");
    if twelve.exists() { twelve } else { scene.library("cuda_v13/libggml-cuda.so") }
}

/// Patches the backend's file.
fn patched(plan: &mut ScenePlan, how: fn(Patch) -> Result<Patch>) {
    installed(plan, move |scene| {
        let path = backend(scene);
        own_copy(&path)?;
        how(Patch::read(&path)?)?.write(&path, 0)
    });
}

/// Replaces llama-server by a script, which can start the real one as $REAL.
pub fn llama_server(plan: &mut ScenePlan, text: &'static str) {
    installed(plan, move |scene| {
        let (path, real) = (scene.library("llama-server"), scene.library("llama-server.real"));
        fs::rename(&path, &real)?;
        script(&path, &format!("REAL={}\n{text}", real.display()))
    });
}

/// Has the runner of an era B Ollama execute the script `text`.
fn runner(plan: &mut ScenePlan, text: &'static str) {
    plan.era = Era::B;
    plan.set("STANDIN_RUNNER", text);
}

fn healthy(plan: &mut ScenePlan, era: Era, backends: &[Backend], capability: &str) {
    plan.era = era;
    plan.backends = backends.to_vec();
    plan.capability(capability);
}

/// Device files that a process opens.
pub const DEVICE_FILES: [&str; 4] = ["resource0", "resource0_ro", "resource2", "resource2_wc"];

/// Runs the service as another user, who may open the device.
pub fn service_of_nobody(plan: &mut ScenePlan) {
    plan.service().properties.push(("User", "nobody".to_owned()));
    plan.step(When::Served, |scene| {
        for name in DEVICE_FILES {
            fs::set_permissions(scene.function(name), fs::Permissions::from_mode(0o666))?;
        }
        Ok(())
    });
    home_of_nobody(plan);
}

/// Gives the home, in which the bench's own service has made files as root, to the unit's user.
fn home_of_nobody(plan: &mut ScenePlan) {
    plan.step(When::Running, |scene| {
        let home = scene.path("home");
        let given = Command::new("chown").args(["-R", "65534:65534"]).arg(&home).status()?;
        if given.success() { Ok(()) } else { bail!("chown: {given}") }
    });
}

/// Makers in this file, by their names in the catalogue.
pub const MAKERS: &[(&str, Maker)] = &[
    ("program-with-runtime-linked-in", |plan| {
        plan.program = Some("system/program");
        installed(plan, |scene| private_tables(scene, &[], &scene.path("system/program")));
    }),
    ("kernel-refused", |plan| {
        plan.service();
        plan.step(When::Running, refused_kernel);
    }),
    ("backend-with-runtime-linked-in", |plan| {
        installed(plan, |scene| {
            let path = backend(scene);
            fs::remove_file(&path)?;
            private_tables(scene, &["-shared", "-fPIC"], &path)
        });
    }),
    ("ollama-not-installed", |plan| plan.installed = false),
    ("ollama-linked-statically", |plan| {
        installed(plan, |scene| {
            let source =
                "#include <stdio.h>\nint main(void) { puts(\"ollama version is 0.33.0\"); return 0; }\n";
            compile(scene, source, &["-static"], &scene.ollama())
        });
    }),
    ("ollama-setuid", |plan| {
        installed(plan, |scene| {
            let path = scene.ollama();
            std::os::unix::fs::chown(&path, Some(65_534), None)?;
            Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o4755))?)
        });
    }),
    ("ollama-with-capabilities", |plan| {
        plan.nobody = true;
        installed(plan, |scene| {
            // Version 2: effective, and the one capability permitted.
            let words = [0x0200_0001_u32, 1 << 10, 0, 0, 0];
            let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let flags = rustix::fs::XattrFlags::empty();
            Ok(rustix::fs::setxattr(scene.ollama(), "security.capability", &value, flags)?)
        });
        plan.step(When::Served, |scene| {
            for name in ["resource0", "resource0_ro", "resource2"] {
                fs::set_permissions(scene.function(name), fs::Permissions::from_mode(0o666))?;
            }
            Ok(())
        });
    }),
    ("ollama-of-another-machine", |plan| {
        const BYTES: [u8; 2] = MACHINE_AARCH64.to_le_bytes();
        program(plan, MACHINE, &BYTES);
    }),
    ("ollama-of-32-bits", |plan| program(plan, CLASS, &[CLASS_32])),
    ("ollama-of-musl", |plan| {
        installed(plan, |scene| {
            let path = scene.ollama();
            let bytes = fs::read(&path)?;
            let at =
                bytes.windows(LOADER.len()).position(|window| window == LOADER).context("find the loader")?;
            Ok(fs::OpenOptions::new().write(true).open(path)?.write_all_at(MUSL, at as u64)?)
        });
    }),
    ("ollama-from-snap", |plan| {
        installed(plan, |scene| {
            let snap = scene.path("usr/bin/snap");
            script(&snap, "echo 'snap-confine has elevated permissions' >&2; exit 1")?;
            let path = scene.path("path/ollama");
            fs::remove_file(&path)?;
            Ok(symlink(snap, path)?)
        });
    }),
    ("ollama-in-container", |plan| wrapper(plan, "exec docker exec -it ollama ollama \"$@\"")),
    ("library-folder-gone", |plan| {
        installed(plan, |scene| Ok(fs::remove_dir_all(scene.path("usr/lib"))?));
    }),
    ("era-c-without-llama-server", |plan| {
        installed(plan, |scene| {
            fs::remove_file(scene.library("llama-server"))?;
            Ok(fs::remove_file(scene.library("libllama.so"))?)
        });
    }),
    ("era-b-with-llama-server", |plan| {
        installed(plan, |scene| {
            let standin = vgpu_testbed::programs::standin()?;
            Ok(executable::copy(&standin.with_file_name("ollama-era-b"), &scene.ollama())?)
        });
    }),
    ("another-program-called-ollama", |plan| {
        installed(plan, |scene| Ok(executable::copy("/bin/true".as_ref(), &scene.ollama())?));
    }),
    // ---- loader
    ("real-libcuda-wins", |plan| {
        wrapper(plan, "export LD_PRELOAD=\"$SYSTEM/libcuda.so.1:$LD_PRELOAD\"\nexec \"$OLLAMA\" \"$@\"");
        installed(plan, |scene| other_libcuda(scene, &scene.path("system/libcuda.so.1")));
    }),
    ("libcuda-in-library-folder", |plan| {
        plan.era = Era::A;
        installed(plan, |scene| libcuda_without_devices(scene, &scene.library("libcuda.so.1")));
    }),
    ("wrapper-strips-preload", |plan| wrapper(plan, "exec env -u LD_PRELOAD \"$OLLAMA\" \"$@\"")),
    ("wrapper-clears-environment", |plan| wrapper(plan, "exec env -i PATH=/usr/bin:/bin \"$OLLAMA\" \"$@\"")),
    ("wrapper-closes-descriptors", |plan| {
        wrapper(
            plan,
            "exec bash -c 'for fd in /proc/self/fd/*; do fd=${fd##*/}; [ $fd -gt 2 ] && eval \"exec $fd>&-\"; done; \
             exec \"$0\" \"$@\"' \"$OLLAMA\" \"$@\"",
        );
    }),
    // ---- backend
    ("backend-folders-gone", |plan| plan.backends.clear()),
    ("backend-file-gone", |plan| {
        plan.backends = vec![Backend::Cuda12];
        installed(plan, |scene| Ok(fs::remove_file(backend(scene))?));
    }),
    ("backend-truncated", |plan| {
        installed(plan, |scene| {
            let path = backend(scene);
            own_copy(&path)?;
            Ok(fs::OpenOptions::new().write(true).open(path)?.set_len(100 << 20)?)
        });
    }),
    ("backend-is-a-web-page", |plan| {
        installed(plan, |scene| {
            let path = backend(scene);
            fs::remove_file(&path)?;
            Ok(fs::File::create(path)?
                .write_all(b"<!DOCTYPE html>\n<html><title>404 Not Found</title></html>\n")?)
        });
    }),
    ("base-library-gone", |plan| {
        installed(plan, |scene| Ok(fs::remove_file(scene.library("libggml-base.so"))?));
    }),
    ("needs-another-library", |plan| patched(plan, |patch| patch.rename("libstdc++.so.6", "libstdc++.so.9"))),
    ("cuda-function-unknown", |plan| patched(plan, |patch| patch.rename("cudaMalloc", "cudaMalloq"))),
    ("ggml-function-unknown", |plan| patched(plan, |patch| patch.rename("ggml_nbytes", "ggml_nbytez"))),
    ("runtime-node-wrong", |plan| {
        patched(plan, |patch| patch.ask_for_version("libcudart.so.13", "libcublas.so.13"));
    }),
    ("cublas-node-wrong", |plan| {
        patched(plan, |patch| patch.ask_for_version("libcublas.so.13", "libcudart.so.13"));
    }),
    ("architectures-patched", |plan| patched(plan, |patch| patch.architectures(121))),
    ("architectures-not-listed", |plan| {
        patched(plan, |patch| patch.text("750,800,860,890", "750,800,870,890"));
    }),
    // ---- init
    ("backend-closed-to-the-services-user", |plan| {
        service_of_nobody(plan);
        plan.service().running = false;
        installed(plan, |scene| {
            let path = backend(scene);
            own_copy(&path)?;
            Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o600))?)
        });
    }),
    ("libraries-on-noexec", |plan| {
        plan.mounts.push(
            "mount --bind $SCENE/usr/lib $SCENE/usr/lib && mount -o remount,bind,noexec $SCENE/usr/lib"
                .to_owned(),
        );
    }),
    ("backend-crashes", |plan| patched(plan, |patch| patch.code("ggml_backend_init", &UNDEFINED))),
    ("constructor-crashes", |plan| patched(plan, |patch| patch.initialiser(&UNDEFINED))),
    ("backend-hangs", |plan| patched(plan, |patch| patch.code("ggml_backend_init", &LOOP))),
    ("backend-gives-nothing", |plan| patched(plan, |patch| patch.code("ggml_backend_init", &RETURN_NULL))),
    ("backend-ends-the-process", |plan| patched(plan, |patch| patch.code("ggml_backend_init", &EXIT))),
    // ---- discovery
    ("llama-server-hangs", |plan| llama_server(plan, "exec sleep 600")),
    ("llama-server-crashes", |plan| llama_server(plan, "kill -SEGV $$")),
    ("llama-server-short-of-address-space", |plan| {
        llama_server(plan, "ulimit -v 150000\nexec \"$REAL\" \"$@\"");
    }),
    ("llama-server-stripped", |plan| llama_server(plan, "exec env -u LD_PRELOAD \"$REAL\" \"$@\"")),
    ("llama-server-sees-nothing", |plan| {
        llama_server(plan, "CUDA_VISIBLE_DEVICES=-1 exec \"$REAL\" \"$@\"");
    }),
    ("llama-server-speaks-in-tongues", |plan| {
        llama_server(plan, "printf 'QZXW \\001\\377\\000 QZXW\\n'; printf 'QZXW \\002\\376\\n' >&2; exit 0");
    }),
    ("runner-hangs", |plan| runner(plan, "hang")),
    ("runner-crashes", |plan| runner(plan, "abort")),
    ("runner-refuses-architecture", |plan| runner(plan, "no-architecture")),
    ("llama-server-shows-no-memory", |plan| {
        llama_server(plan, "\"$REAL\" \"$@\" | sed 's/([0-9]* MiB, [0-9]* MiB free)/(0 MiB, 0 MiB free)/'");
    }),
    // ---- Ollama itself
    ("server-out-of-threads", |plan| plan.set("STANDIN_SERVE", "die")),
    ("server-finds-cpu", |plan| plan.set("STANDIN_SERVE", "cpu")),
    ("server-hangs", |plan| plan.set("STANDIN_SERVE", "hang")),
    ("llama-server-for-its-server-alone", |plan| {
        llama_server(
            plan,
            "case $(cat /proc/$PPID/comm) in ollama*) exec \"$REAL\" \"$@\" ;; esac\nkill -SEGV $$",
        );
    }),
    // ---- healthy
    ("service-of-another-user", service_of_nobody),
    ("service-in-the-devices-group", |plan| {
        let properties = &mut plan.service().properties;
        properties.push(("User", "nobody".to_owned()));
        properties.push(("SupplementaryGroups", "4242".to_owned()));
        home_of_nobody(plan);
        plan.step(When::Served, |scene| {
            for name in DEVICE_FILES {
                let path = scene.function(name);
                std::os::unix::fs::chown(&path, None, Some(4242))?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
            }
            Ok(())
        });
    }),
    ("era-a-cuda12", |plan| healthy(plan, Era::A, &[Backend::Cuda12], "6.1")),
    ("era-a-cuda13", |plan| healthy(plan, Era::A, &[Backend::Cuda13], "8.6")),
    ("era-b-cuda12", |plan| healthy(plan, Era::B, &[Backend::Cuda12], "6.1")),
    ("era-b-cuda13", |plan| healthy(plan, Era::B, &[Backend::Cuda13], "8.6")),
    ("era-c-cuda12", |plan| healthy(plan, Era::C, &[Backend::Cuda12], "6.1")),
    ("era-c-cuda13", |plan| healthy(plan, Era::C, &[Backend::Cuda13], "8.6")),
    ("era-c-both", |plan| healthy(plan, Era::C, &Backend::ALL, "8.6")),
];
