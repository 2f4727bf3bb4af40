//! Builds the shims: compile all crates to one static library ([`core`]), take out what no shim uses
//! ([`backtrace`]), link it to libcuda.so.1, which holds the code of all ([`link`]), and generate the objects
//! of the other libraries, whose names jump there ([`gate`]). A listed name that is not defined becomes a
//! stub ([`stub`]). Then examine the results ([`inspect`]) and describe them ([`manifest`]). And what goes
//! with them: the helper program ([`probe`]), the tracer ([`trace`]). Nothing is done for an object whose
//! inputs are unchanged ([`inputs`]).

pub mod archive;
pub mod backtrace;
mod companion;
pub mod compile;
pub mod core;
mod error;
mod files;
pub mod first;
mod freshness;
pub mod gate;
pub mod inputs;
pub mod inspect;
mod library;
pub mod link;
pub mod manifest;
mod options;
pub mod probe;
mod shim;
mod sources;
pub mod stub;
pub mod symbols;
mod tools;
pub mod trace;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub use companion::Companion;
pub use error::ShimError;
pub use files::{replace, sha256};
pub use library::{LIBRARIES, Library};
pub use options::Options;
pub use sources::{listed, object};

use companion::{build_companion, companion_states};
use library::position;
use manifest::Manifest;
use shim::{build, states};
use tools::Tools;

/// Result of [`update`].
#[derive(Debug)]
pub struct UpdateReport {
    /// Manifest of the objects in the output directory.
    pub manifest: Manifest,
    /// SONAMEs of the objects that were built.
    pub built: Vec<&'static str>,
    /// SONAMEs and errors of the shims that could not be built. Their old objects are kept.
    pub failed: Vec<(&'static str, ShimError)>,
    /// Files and directories on which the objects depend.
    pub watch: BTreeSet<PathBuf>,
}

/// Builds every shim whose inputs have changed, or whose object does not match the manifest. Concurrent
/// processes do so one after the other.
pub fn update(options: &Options) -> Result<UpdateReport, ShimError> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(ShimError::Machine);
    }
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| ShimError::File { path, source }
    };
    for folder in [&options.out, &options.target] {
        fs::create_dir_all(folder).map_err(at(folder))?;
    }
    let path = options.target.join("xtask.lock");
    let _lock = files::lock(&path).map_err(at(&path))?;
    let tools = Tools::ask(&options.linker)?;
    let (states, mut watch) = states(options, &tools)?;
    let companions = companion_states(options, &tools)?;
    watch.extend(companions.iter().flat_map(|state| state.watch.clone()));
    let mut manifest = Manifest::read(&options.out).unwrap_or_default().unwrap_or_default();
    let mut report =
        UpdateReport { manifest: Manifest::default(), built: Vec::new(), failed: Vec::new(), watch };
    let mut core = None;
    for state in states.iter().filter(|state| state.stale.is_some()) {
        match build(options, &tools, state, &mut core) {
            Ok(entry) => {
                manifest.shims.retain(|other| other.soname != entry.soname);
                manifest.shims.push(entry);
                manifest.shims.sort_by_key(|entry| position(&entry.soname));
                manifest.write(&options.out)?;
                report.built.push(state.library.soname);
            }
            Err(error) => report.failed.push((state.library.soname, error)),
        }
    }
    for state in companions.iter().filter(|state| state.stale.is_some()) {
        match build_companion(options, &tools, state) {
            Ok(program) => {
                *state.companion.entry_mut(&mut manifest) = Some(program);
                manifest.write(&options.out)?;
                report.built.push(state.companion.file());
            }
            Err(error) => report.failed.push((state.companion.file(), error)),
        }
    }
    report.manifest = manifest;
    Ok(report)
}

/// Returns the shims that [`update`] would build, each with the reason.
pub fn stale(options: &Options) -> Result<Vec<(&'static str, String)>, ShimError> {
    let tools = Tools::ask(&options.linker)?;
    let (states, _) = states(options, &tools)?;
    let companions = companion_states(options, &tools)?.into_iter();
    let companions = companions.filter_map(|state| Some((state.companion.file(), state.stale?)));
    let shims = states.into_iter().filter_map(|state| Some((state.library.soname, state.stale?)));
    Ok(shims.chain(companions).collect())
}

/// Reads the manifest of a directory of finished shims, and checks that all objects exist and match it.
pub fn open(folder: &Path) -> Result<Manifest, ShimError> {
    let manifest = Manifest::read(folder)?.unwrap_or_default();
    for library in &LIBRARIES {
        let absent = || ShimError::Absent { soname: library.soname.into(), folder: folder.to_owned() };
        let entry = manifest.entry(library.soname).ok_or_else(absent)?;
        let path = folder.join(library.soname);
        let bytes = fs::read(&path).map_err(|source| ShimError::File { path: path.clone(), source })?;
        if sha256(&bytes) != entry.sha256 {
            return Err(ShimError::Differs(path));
        }
    }
    for companion in Companion::ALL {
        let absent = || ShimError::Absent { soname: companion.file().into(), folder: folder.to_owned() };
        let program = companion.entry(&manifest).ok_or_else(absent)?;
        let path = folder.join(companion.file());
        let bytes = fs::read(&path).map_err(|source| ShimError::File { path: path.clone(), source })?;
        if sha256(&bytes) != program.sha256 {
            return Err(ShimError::Differs(path));
        }
    }
    Ok(manifest)
}
