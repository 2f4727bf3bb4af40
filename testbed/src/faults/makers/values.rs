//! Faults of the values that a server starts with: its address, its home, its models, and its directory for
//! temporary files; and scripts that change them or send the server's output elsewhere.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};

use anyhow::{Context, Result};

use super::super::plan::{Era, Maker, ScenePlan, When};
use super::super::scene::Scene;
use super::ollama::{compile, installed, wrapper};
use super::rights::nobody;

/// Has another program, this one, listen at the scene's address.
fn another_program(scene: &mut Scene) -> Result<()> {
    let listener = TcpListener::bind(scene.address()).context("listen at the scene's address")?;
    // It listens until the bench ends.
    std::mem::forget(listener);
    Ok(())
}

/// Has an Ollama that the launcher did not start listen at the scene's address.
fn stock_ollama(scene: &mut Scene) -> Result<()> {
    let address = scene.address();
    scene.serve_beside(&address)?;
    scene.wait_for_service()
}

/// Runs a service under the launcher, and tells the check only its address.
fn server(plan: &mut ScenePlan) {
    plan.names_service = false;
    plan.service();
}

/// Makers in this file, by their names in the catalogue.
pub const MAKERS: &[(&str, Maker)] = &[
    // An address for documentation, which no machine has (RFC 5737).
    ("address-of-another-machine", |plan| plan.set("OLLAMA_HOST", "203.0.113.7:11434")),
    ("address-unknown", |plan| plan.set("OLLAMA_HOST", "no-such-host.invalid:11434")),
    ("port-of-root", |plan| {
        nobody(plan);
        plan.set("OLLAMA_HOST", "127.0.0.1:80");
    }),
    ("address-of-another-program", |plan| plan.step(When::Running, another_program)),
    ("address-of-a-stock-ollama", |plan| plan.step(When::Running, stock_ollama)),
    ("script-chooses-a-taken-address", |plan| {
        plan.step(When::Running, another_program);
        wrapper(plan, "OLLAMA_HOST=$OTHER exec \"$OLLAMA\" \"$@\"");
        plan.step(When::Running, |scene| {
            let path = scene.path("path/ollama");
            let text = fs::read_to_string(&path)?.replace("$OTHER", &scene.address());
            Ok(fs::write(path, text)?)
        });
        plan.set("OLLAMA_HOST", "127.0.0.1:0");
    }),
    ("home-not-set", |plan| plan.limits.push("unset HOME".to_owned())),
    ("home-leads-nowhere", |plan| {
        installed(plan, |scene| Ok(symlink("/nonexistent", scene.path("home/.ollama"))?));
    }),
    ("models-are-a-file", |plan| plan.set("OLLAMA_MODELS", "/etc/passwd")),
    ("empty-manifests-of-root", |plan| {
        nobody(plan);
        installed(plan, |scene| {
            for folder in ["models/blobs", "models/manifests"] {
                fs::create_dir_all(scene.path(folder))?;
            }
            Ok(fs::set_permissions(scene.path("models"), Permissions::from_mode(0o755))?)
        });
        plan.set("OLLAMA_MODELS", "$SCENE/models");
    }),
    ("no-room-for-a-key", |plan| {
        plan.mounts.push(
            "mount -t tmpfs -o size=4k none $SCENE/home && head -c 4096 /dev/zero > $SCENE/home/full"
                .to_owned(),
        );
    }),
    ("temporary-directory-gone", |plan| {
        plan.era = Era::B;
        plan.set("TMPDIR", "/nonexistent");
    }),
    ("lock-of-another-program", |plan| {
        wrapper(
            plan,
            "case $1 in serve) exec flock \"$SYSTEM/lock\" \"$OLLAMA\" \"$@\" ;; esac\nexec \"$OLLAMA\" \"$@\"",
        );
        plan.step(When::Running, |scene| {
            let file = fs::File::create(scene.path("system/lock"))?;
            file.lock().context("lock")?;
            std::mem::forget(file);
            Ok(())
        });
    }),
    ("setting-not-accepted", |plan| plan.set("LLAMA_ARG_DEVICE", "CUDA7")),
    ("cache-type-unknown", |plan| plan.set("OLLAMA_KV_CACHE_TYPE", "q9_9")),
    ("api-key-asked-for", |plan| plan.set("LLAMA_API_KEY", "secret")),
    ("tls-asked-for", |plan| {
        plan.set("LLAMA_ARG_SSL_KEY_FILE", "/etc/ssl/key.pem");
        plan.set("LLAMA_ARG_SSL_CERT_FILE", "/etc/ssl/cert.pem");
    }),
    ("tool-unknown", |plan| plan.set("LLAMA_ARG_TOOLS", "x")),
    ("events-refused", |plan| {
        // epoll_create1(2).
        plan.sandbox.extend(["--errno", "13", "--refuse", "291"].map(str::to_owned));
    }),
    ("draft-model-gone", |plan| plan.set("LLAMA_ARG_SPEC_DRAFT_MODEL", "/nonexistent.gguf")),
    ("server-says-why", |plan| {
        wrapper(
            plan,
            "case $1 in serve) echo 'Error: mkdir /m: file exists: ensure path elements are traversable' >&2; exit 1 ;; esac\n\
             exec \"$OLLAMA\" \"$@\"",
        );
    }),
    ("another-backend-sorts-first", |plan| {
        installed(plan, |scene| {
            let from = scene.library("libggml-base.so");
            Ok(fs::copy(from, scene.library("cuda_v13/libggml-cuda-old.so")).map(drop)?)
        });
    }),
    ("library-path-brings-another-library", |plan| {
        // A libstdc++ without a single version, as one of another system lacks some.
        installed(plan, |scene| {
            fs::create_dir(scene.path("old"))?;
            compile(
                scene,
                "int nothing(void) { return 0; }\n",
                &["-shared", "-fPIC", "-Wl,-soname,libstdc++.so.6"],
                &scene.path("old/libstdc++.so.6"),
            )
        });
        plan.set("LD_LIBRARY_PATH", "$SCENE/old");
    }),
    ("no-null-device", |plan| {
        plan.mounts
            .push("mount -t tmpfs none /dev && mkdir /dev/shm && mount -t tmpfs none /dev/shm".to_owned());
    }),
    ("no-further-process", |plan| {
        // fork, vfork, clone and clone3.
        for number in ["57", "58", "56", "435"] {
            plan.sandbox.extend(["--refuse".to_owned(), number.to_owned()]);
        }
    }),
    ("connections-refused", |plan| {
        // accept4(2), which old filters do not know and answer with ENOSYS. A check is not under the filter.
        wrapper(
            plan,
            "exec \"$PROGRAMS/vgpu-standin\" sandbox --errno 38 --refuse 288 -- \"$OLLAMA\" \"$@\"",
        );
    }),
    // listen(2), the first call of a server that the launcher does not make before.
    ("listening-refused", |plan| {
        plan.sandbox.extend(["--errno", "38", "--refuse", "50"].map(str::to_owned));
    }),
    ("memory-advice-refused", |plan| plan.sandbox.extend(["--refuse", "28"].map(str::to_owned))),
    // setpgid(2), which check makes and a server does not.
    ("process-groups-refused", |plan| {
        plan.sandbox.extend(["--errno", "38", "--refuse", "109"].map(str::to_owned));
    }),
    ("connections-kill", |plan| plan.sandbox.extend(["--kill", "288"].map(str::to_owned))),
    ("no-loopback", |plan| plan.limits.push("exec unshare --net -- \"$@\"".to_owned())),
    // ---- healthy
    ("second-device-too-old", |plan| {
        let mut second = plan.devices[0].clone();
        "0000:00:06.0".clone_into(&mut second.address);
        "VGPU-STUB second".clone_into(&mut second.name);
        second.uuid = format!("{:032x}", rand::random::<u128>());
        "6.1".clone_into(&mut second.cc);
        plan.devices.push(second);
    }),
    ("models-of-root", |plan| {
        nobody(plan);
        installed(plan, |scene| {
            for folder in ["models/blobs", "models/manifests/registry"] {
                fs::create_dir_all(scene.path(folder))?;
            }
            fs::write(scene.path("models/manifests/registry/x"), "{}")?;
            Ok(fs::set_permissions(scene.path("models"), Permissions::from_mode(0o755))?)
        });
        plan.set("OLLAMA_MODELS", "$SCENE/models");
    }),
    ("models-on-a-read-only-file-system", |plan| {
        installed(plan, |scene| Ok(fs::create_dir_all(scene.path("models/blobs"))?));
        plan.mounts.push(
            "mount --bind $SCENE/models $SCENE/models && mount -o remount,bind,ro $SCENE/models".to_owned(),
        );
        plan.set("OLLAMA_MODELS", "$SCENE/models");
    }),
    ("damaged-manifest-of-root", |plan| {
        nobody(plan);
        installed(plan, |scene| {
            for folder in ["models/blobs", "models/manifests/host/library/model", "models/manifests/empty"] {
                fs::create_dir_all(scene.path(folder))?;
            }
            fs::write(scene.path("models/manifests/host/library/model/tag"), "{")?;
            Ok(fs::set_permissions(scene.path("models"), Permissions::from_mode(0o755))?)
        });
        plan.set("OLLAMA_MODELS", "$SCENE/models");
    }),
    ("temporary-directory-gone-of-era-c", |plan| plan.set("TMPDIR", "/nonexistent")),
    ("script-reads-its-home", |plan| {
        installed(plan, |scene| Ok(fs::write(scene.path("home/.ollamarc"), "OK=yes\n")?));
        wrapper(plan, ". \"$HOME/.ollamarc\" || exit 1\n[ \"$OK\" = yes ] && exec \"$OLLAMA\" \"$@\"");
    }),
    ("script-chooses-the-address", |plan| {
        plan.step(When::Running, another_program);
        wrapper(plan, "OLLAMA_HOST=127.0.0.1:0 exec \"$OLLAMA\" \"$@\"");
    }),
    ("script-sends-the-log-to-a-file", |plan| {
        wrapper(plan, "exec \"$OLLAMA\" \"$@\" > \"$SYSTEM/own-log\" 2>&1");
    }),
    ("script-sends-the-errors-to-a-file", |plan| {
        wrapper(plan, "echo starting\nexec \"$OLLAMA\" \"$@\" 2> \"$SYSTEM/errors\"");
    }),
    ("script-fails-with-a-line", |plan| wrapper(plan, "echo 'no licence' >&2\nexit 3")),
    ("script-sends-the-log-nowhere", |plan| {
        wrapper(
            plan,
            "case $1 in serve) exec \"$OLLAMA\" \"$@\" > /dev/null 2>&1 ;; esac\nexec \"$OLLAMA\" \"$@\"",
        );
    }),
    ("script-starts-a-daemon", |plan| {
        wrapper(plan, "case $1 in serve) \"$OLLAMA\" \"$@\" & exit 0 ;; esac\nexec \"$OLLAMA\" \"$@\"");
    }),
    ("script-waits-for-the-servers-lock", |plan| {
        server(plan);
        wrapper(plan, "exec flock \"$SYSTEM/lock\" \"$OLLAMA\" \"$@\"");
    }),
    ("script-refuses-a-second-server", |plan| {
        server(plan);
        wrapper(plan, "exec flock -n \"$SYSTEM/lock\" \"$OLLAMA\" \"$@\"");
    }),
];
