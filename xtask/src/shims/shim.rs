//! A single shim: whether it must be built, and how.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::companion::Companion;
use super::compile;
use super::core::Core;
use super::error::ShimError;
use super::files::{replace, sha256};
use super::freshness::{Built, reason};
use super::gate::Table;
use super::inputs::Inputs;
use super::inspect::{self, Expected, Object};
use super::library::{LIBCUDA, LIBRARIES, Library, position};
use super::link::{self, CoreJob, GateJob, Names};
use super::manifest::{Entry, Manifest};
use super::options::Options;
use super::sources::{listed, object};
use super::tools::Tools;

/// State of a shim compared with its inputs.
pub struct LinkState {
    /// The library that the shim stands in for.
    pub library: &'static Library,
    /// SHA-256 of its sources, tools and tool options.
    pub digest: String,
    /// Reason for a rebuild; `None` if the shim is up to date.
    pub stale: Option<String>,
}

/// Returns the state of each shim that the options select, and the files and directories on which these
/// depend.
pub fn states(options: &Options, tools: &Tools) -> Result<(Vec<LinkState>, BTreeSet<PathBuf>), ShimError> {
    let known = |name: &str| {
        position(name) < LIBRARIES.len() || Companion::ALL.iter().any(|companion| companion.file() == name)
    };
    if let Some(name) = options.only.iter().find(|name| !known(name)) {
        return Err(ShimError::Unknown(name.clone()));
    }
    // A manifest that cannot be read is as good as none: everything is built anew.
    let manifest = Manifest::read(&options.out).unwrap_or_default().unwrap_or_default();
    let mut inputs = Inputs::open(&options.root)?;
    let mut watch = BTreeSet::new();
    let mut states = Vec::new();
    for library in &LIBRARIES {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == library.soname) {
            continue;
        }
        let digest = inputs.digest(compile::CORE, &format!("{library:?}"), &tools.all)?;
        watch.extend(digest.watch);
        let entry = manifest.entry(library.soname).map(Built::from);
        let stale = reason(&options.out.join(library.soname), entry, &digest.hex, tools);
        states.push(LinkState { library, digest: digest.hex, stale });
    }
    Ok((states, watch))
}

/// Compiles, links, examines and installs a shim. `core` is compiled when the first shim needs it.
pub fn build(
    options: &Options,
    tools: &Tools,
    state: &LinkState,
    core: &mut Option<Core>,
) -> Result<Entry, ShimError> {
    let core = if let Some(core) = core {
        core
    } else {
        let archive = compile::compile(&options.root, &options.target, compile::CORE, options.locked)?;
        core.insert(Core::read(&archive)?)
    };
    let library = state.library;
    let symbols = listed(&options.root, library)?;
    let implemented = core.implemented(library, &symbols)?;
    let names = Names {
        soname: library.soname,
        node: library.node(),
        status: library.not_supported,
        symbols: &symbols,
    };
    let work = options.target.join("link").join(library.soname);
    let libcuda = options.out.join(LIBCUDA.soname);
    let is_core = library.soname == LIBCUDA.soname;
    let path = if is_core {
        let tables = tables(core, options)?;
        let job = CoreJob {
            names,
            implementation: library.implementation,
            implemented: &implemented,
            tables: &tables,
            archive: &core.archive,
            work: &work,
        };
        link::link_core(&options.linker, &job)?
    } else {
        let table = Table::new(library.soname, &implemented);
        // The reference to it is weak: the linker would not miss it.
        if !object(&libcuda)?.tables.contains(table.symbol()) {
            let problems = format!("the libcuda.so.1 beside it has no {}", table.symbol());
            return Err(ShimError::Wrong { soname: library.soname.into(), problems });
        }
        let job = GateJob {
            names,
            table: &table,
            not_initialized: library.not_initialized,
            libcuda: &libcuda,
            work: &work,
        };
        link::link_gate(&options.linker, &job)?
    };
    let bytes = fs::read(&path).map_err(|source| ShimError::File { path: path.clone(), source })?;
    let object = Object::parse(&bytes).map_err(|source| ShimError::Object { path, source })?;
    let names: BTreeSet<&str> = symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    let needed: &[_] = if is_core { &[] } else { &[LIBCUDA.soname] };
    let expected = Expected { soname: library.soname, node: library.node(), names: &names, needed };
    let problems = inspect::problems(&object, &expected);
    if !problems.is_empty() {
        return Err(ShimError::Wrong { soname: library.soname.into(), problems: problems.join("; ") });
    }
    let path = options.out.join(library.soname);
    replace(&path, &bytes).map_err(|source| ShimError::File { path, source })?;
    Ok(Entry {
        soname: library.soname.into(),
        major: library.major,
        sha256: sha256(&bytes),
        bytes: bytes.len() as u64,
        exports: object.exports.len(),
        glibc: object.glibc.map(|version| version.to_string()),
        needed: object.needed,
        rustc: tools.rustc.clone(),
        linker: tools.linker.clone(),
        inputs: state.digest.clone(),
        implemented: implemented.into_iter().collect(),
    })
}

/// Returns the tables of all libraries except libcuda, each with the crate that implements it.
fn tables(core: &Core, options: &Options) -> Result<Vec<(Table, &'static str)>, ShimError> {
    let table = |library: &Library| {
        let implemented = core.implemented(library, &listed(&options.root, library)?)?;
        Ok((Table::new(library.soname, &implemented), library.implementation))
    };
    LIBRARIES[1..].iter().map(table).collect()
}
