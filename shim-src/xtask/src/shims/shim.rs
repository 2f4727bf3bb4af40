//! One shim: whether it must be built, and building it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::companion::Companion;
use super::compile;
use super::error::ShimError;
use super::files::{replace, sha256};
use super::freshness::{Built, reason};
use super::inputs::Inputs;
use super::inspect::{self, Expected, Object};
use super::library::{Driver, LIBCUDA, LIBRARIES, Library, position};
use super::link::{self, Job};
use super::manifest::{Entry, Manifest};
use super::options::Options;
use super::sources::listed;
use super::tools::Tools;

/// One object as it is and as its inputs would have it.
pub struct State {
    /// The library that the shim stands in for.
    pub library: &'static Library,
    /// SHA-256 of its sources, its tools and their options.
    pub digest: String,
    /// Why it must be built, if it must.
    pub stale: Option<String>,
}

/// The state of each shim that is asked for, and the files and folders on which they depend.
pub fn states(options: &Options, tools: &Tools) -> Result<(Vec<State>, BTreeSet<PathBuf>), ShimError> {
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
        let digest = inputs.digest(library, &tools.all)?;
        watch.extend(digest.watch);
        let entry = manifest.entry(library.soname).map(Built::from);
        let stale = reason(&options.out.join(library.soname), entry, &digest.hex, tools);
        states.push(State { library, digest: digest.hex, stale });
    }
    Ok((states, watch))
}

/// Compiles, links, examines and installs a shim.
pub fn build(options: &Options, tools: &Tools, state: &State) -> Result<Entry, ShimError> {
    let library = state.library;
    let symbols = listed(&options.root, library)?;
    let archive = compile::compile(&options.root, &options.target, library, options.locked)?;
    let libcuda = options.out.join(LIBCUDA.soname);
    let work = options.target.join("link").join(library.soname);
    let job = Job {
        soname: library.soname,
        node: library.node(),
        status: library.not_supported,
        symbols: &symbols,
        prefixes: library.prefixes,
        archive: &archive,
        driver: Some((&libcuda, library.driver)),
        work: &work,
    };
    let linked = link::link(&options.linker, &job)?;
    let bytes =
        fs::read(&linked.path).map_err(|source| ShimError::File { path: linked.path.clone(), source })?;
    let object =
        Object::parse(&bytes).map_err(|source| ShimError::Object { path: linked.path.clone(), source })?;
    let names: BTreeSet<&str> = symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    let needed: &[_] = if library.driver == Driver::Needs { &[LIBCUDA.soname] } else { &[] };
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
        implemented: linked.implemented.into_iter().collect(),
    })
}
