//! The objects built beside the shims: the probe and the tracer.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::error::ShimError;
use super::files::{replace, sha256};
use super::freshness::{Built, reason};
use super::inputs::Inputs;
use super::inspect::Object;
use super::library::LIBRARIES;
use super::link::Linker;
use super::manifest::{Manifest, Program};
use super::options::Options;
use super::sources::listed;
use super::tools::Tools;
use super::{compile, probe, trace};

/// An object that is built beside the shims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// The [`probe`] that `check` starts.
    Probe,
    /// The [`trace`] library.
    Trace,
}

impl Companion {
    /// All companions.
    pub const ALL: [Self; 2] = [Self::Probe, Self::Trace];

    /// Returns the object's file name in `embedded/`.
    pub fn file(self) -> &'static str {
        match self {
            Self::Probe => probe::FILE,
            Self::Trace => trace::FILE,
        }
    }

    /// Returns the manifest's entry for this object.
    pub fn entry(self, manifest: &Manifest) -> Option<&Program> {
        match self {
            Self::Probe => manifest.probe.as_ref(),
            Self::Trace => manifest.trace.as_ref(),
        }
    }

    /// Returns the manifest's field for this object's entry.
    pub fn entry_mut(self, manifest: &mut Manifest) -> &mut Option<Program> {
        match self {
            Self::Probe => &mut manifest.probe,
            Self::Trace => &mut manifest.trace,
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Probe => probe::PACKAGE,
            Self::Trace => trace::PACKAGE,
        }
    }

    fn flags(self, linker: &Linker) -> String {
        match self {
            Self::Probe => probe::flags(linker),
            Self::Trace => trace::flags(linker),
        }
        .join(" ")
    }

    fn mode(self) -> u32 {
        match self {
            // It is run from there by nobody but people.
            Self::Probe => 0o755,
            Self::Trace => 0o644,
        }
    }
}

/// State of a companion compared with its inputs.
pub struct CompanionState {
    /// Companion to which this state belongs.
    pub companion: Companion,
    /// SHA-256 of its sources, tools and tool options.
    pub digest: String,
    /// Reason for a rebuild; `None` if the object is up to date.
    pub stale: Option<String>,
    /// Files and directories on which it depends.
    pub watch: BTreeSet<PathBuf>,
}

/// Returns the state of each companion that the options select.
pub fn companion_states(options: &Options, tools: &Tools) -> Result<Vec<CompanionState>, ShimError> {
    let manifest = Manifest::read(&options.out).unwrap_or_default().unwrap_or_default();
    let mut inputs = Inputs::open(&options.root)?;
    let mut states = Vec::new();
    for companion in Companion::ALL {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == companion.file()) {
            continue;
        }
        let about = companion.flags(&options.linker);
        let digest = inputs.digest(companion.package(), &about, &tools.all)?;
        let program = companion.entry(&manifest).map(Built::from);
        let stale = reason(&options.out.join(companion.file()), program, &digest.hex, tools);
        states.push(CompanionState { companion, digest: digest.hex, stale, watch: digest.watch });
    }
    Ok(states)
}

/// Compiles, links, examines and installs a companion.
pub fn build_companion(
    options: &Options,
    tools: &Tools,
    state: &CompanionState,
) -> Result<Program, ShimError> {
    let companion = state.companion;
    let package = companion.package();
    let archive = compile::compile(&options.root, &options.target, package, options.locked)?;
    let work = options.target.join("link").join(companion.file());
    let lists = LIBRARIES.iter().map(|library| listed(&options.root, library));
    let lists = lists.collect::<Result<Vec<_>, _>>()?;
    let path = match companion {
        Companion::Probe => probe::link(&options.linker, &archive, &work)?,
        Companion::Trace => trace::link(&options.linker, &archive, &lists, &work)?,
    };
    let bytes = fs::read(&path).map_err(|source| ShimError::File { path: path.clone(), source })?;
    let object = Object::parse(&bytes).map_err(|source| ShimError::Object { path, source })?;
    let problems = match companion {
        Companion::Probe => probe::problems(&object),
        Companion::Trace => trace::problems(&object, &lists),
    };
    if !problems.is_empty() {
        return Err(ShimError::Wrong { soname: companion.file().into(), problems: problems.join("; ") });
    }
    let path = options.out.join(companion.file());
    replace(&path, &bytes).map_err(|source| ShimError::File { path: path.clone(), source })?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(companion.mode());
    fs::set_permissions(&path, mode).map_err(|source| ShimError::File { path, source })?;
    Ok(Program {
        sha256: sha256(&bytes),
        bytes: bytes.len() as u64,
        glibc: object.glibc.map(|version| version.to_string()),
        needed: object.needed,
        rustc: tools.rustc.clone(),
        linker: tools.linker.clone(),
        inputs: state.digest.clone(),
    })
}
