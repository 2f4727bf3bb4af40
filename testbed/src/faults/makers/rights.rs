//! Faults of permissions and missing parts: files and directories of Ollama that its user may not read or
//! execute, a truncated program, missing CPU backends.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;

use super::super::plan::{Era, Maker, ScenePlan, When};
use super::super::scene::Scene;
use super::super::scene::install::own_copy;
use super::ollama::{DEVICE_FILES, installed, service_of_nobody};

/// Makes files of the function accessible to all users.
pub fn open_to_all(plan: &mut ScenePlan, names: &'static [&'static str]) {
    plan.step(When::Served, move |scene| {
        for name in names {
            fs::set_permissions(scene.function(name), fs::Permissions::from_mode(0o666))?;
        }
        Ok(())
    });
}

/// Runs the check as nobody, who may open the device.
pub fn nobody(plan: &mut ScenePlan) {
    plan.nobody = true;
    open_to_all(plan, &DEVICE_FILES);
}

/// Sets the mode of an entry of the library directory; an empty name stands for the directory.
fn mode(plan: &mut ScenePlan, name: &'static str, mode: u32) {
    installed(plan, move |scene| {
        let path = scene.library(name);
        if path.is_file() {
            own_copy(&path)?;
        }
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
    });
}

/// Removes the CPU backends.
fn without_processor(scene: &mut Scene) -> Result<()> {
    for entry in fs::read_dir(scene.library(""))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("libggml-cpu") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makers in this file, by their names in the catalogue.
pub const MAKERS: &[(&str, Maker)] = &[
    ("ollama-not-executable", |plan| {
        installed(plan, |scene| Ok(fs::set_permissions(scene.ollama(), fs::Permissions::from_mode(0o644))?));
    }),
    ("home-of-another-user", |plan| {
        nobody(plan);
        installed(plan, |scene| {
            Ok(fs::set_permissions(scene.path("home"), fs::Permissions::from_mode(0o755))?)
        });
    }),
    ("llama-server-not-executable", |plan| mode(plan, "llama-server", 0o644)),
    ("llama-server-of-root-alone", |plan| {
        service_of_nobody(plan);
        plan.service().running = false;
        mode(plan, "llama-server", 0o744);
    }),
    ("library-folder-closed-to-the-services-user", |plan| {
        service_of_nobody(plan);
        plan.service().running = false;
        mode(plan, "", 0o700);
    }),
    ("folder-of-libraries-closed", |plan| {
        nobody(plan);
        mode(plan, "..", 0o700);
    }),
    ("backend-folder-closed", |plan| {
        nobody(plan);
        mode(plan, "cuda_v13", 0o700);
    }),
    ("ollama-truncated", |plan| {
        installed(plan, |scene| {
            let file = fs::OpenOptions::new().write(true).open(scene.ollama())?;
            let whole = file.metadata()?.len();
            Ok(file.set_len(whole / 2)?)
        });
    }),
    ("library-truncated", |plan| {
        installed(plan, |scene| {
            let path = scene.library("libggml-base.so");
            own_copy(&path)?;
            let file = fs::OpenOptions::new().write(true).open(path)?;
            let whole = file.metadata()?.len();
            Ok(file.set_len(whole / 2)?)
        });
    }),
    ("cpu-backends-gone", |plan| installed(plan, without_processor)),
    ("cpu-backends-empty", |plan| {
        installed(plan, |scene| {
            for entry in fs::read_dir(scene.library(""))? {
                let path = entry?.path();
                if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libggml-cpu")) {
                    fs::remove_file(&path)?;
                    fs::write(&path, "")?;
                }
            }
            Ok(())
        });
    }),
    ("cpu-backends-of-era-b-gone", |plan| {
        plan.era = Era::B;
        installed(plan, without_processor);
    }),
];
