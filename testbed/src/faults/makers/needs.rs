//! Faults of a library that llama-server needs and only Ollama has: it is unreadable, missing, or from
//! another release.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;

use super::super::plan::{Maker, ScenePlan};
use super::super::scene::Scene;
use super::ollama::{compile, installed};
use super::rights::nobody;

/// File name of a library that only Ollama has.
const LIBRARY: &str = "libmtmd.so.0";
/// Source of a program that links the library, and then continues as llama-server.
const PROGRAM: &str = "#include <unistd.h>\nint mtmd_init(void);\n\
    int main(int argc, char **argv) { if (argc > 100) return mtmd_init(); execv(REAL, argv); return 126; }\n";

/// Compiles the library from `source` into Ollama's library directory.
fn library(scene: &Scene, source: &str) -> Result<()> {
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libmtmd.so.0"];
    compile(scene, source, &flags, &scene.library(LIBRARY))
}

/// Makes llama-server depend on the library, and then applies `change`.
fn needs(plan: &mut ScenePlan, change: fn(&Scene) -> Result<()>) {
    installed(plan, move |scene| {
        let (path, real) = (scene.library("llama-server"), scene.library("llama-server.real"));
        fs::rename(&path, &real)?;
        library(scene, "int mtmd_init(void) { return 0; }\n")?;
        let (real, needed) = (format!("-DREAL=\"{}\"", real.display()), scene.library(LIBRARY));
        let needed = needed.display().to_string();
        compile(
            scene,
            PROGRAM,
            &[&real, "-Wl,-rpath,$ORIGIN", "-Wl,-z,lazy", "-Wl,--no-as-needed", &needed],
            &path,
        )?;
        change(scene)
    });
}

/// Makers in this file, by their names in the catalogue.
pub const MAKERS: &[(&str, Maker)] = &[
    ("llama-server-with-its-library", |plan| needs(plan, |_| Ok(()))),
    ("library-of-llama-server-closed", |plan| {
        nobody(plan);
        needs(plan, |scene| {
            Ok(fs::set_permissions(scene.library(LIBRARY), fs::Permissions::from_mode(0o600))?)
        });
    }),
    ("library-of-llama-server-gone", |plan| {
        needs(plan, |scene| Ok(fs::remove_file(scene.library(LIBRARY))?));
    }),
    ("library-of-llama-server-of-another-release", |plan| {
        needs(plan, |scene| library(scene, "int mtmd_init_from_file(void) { return 0; }\n"));
    }),
];
