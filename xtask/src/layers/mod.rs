//! Finds files of a crate that depend on each other in a cycle. Layers help a reader: a file can be
//! understood with those below it, and nothing below leads back to it.
//!
//! An edge goes from a file that contains a path to the file that defines the path's target, through imports,
//! re-exports and globs, wherever the path occurs. Methods are not paths. Code for tests alone
//! (`#[cfg(test)]`) is ignored, since a test uses whatever it needs.

mod error;
mod names;
mod paths;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use serde::Serialize;
use serde_json::Value;

pub use error::LayersError;

use tree::{Crate, File};

/// Findings in one crate.
#[derive(Debug, Serialize)]
pub struct Layers {
    /// Name of the package.
    pub name: String,
    /// Cycles of dependent files, each sorted, with paths relative to the workspace.
    pub circles: Vec<Vec<PathBuf>>,
    /// Files above the maximum length, with their numbers of lines.
    pub long: Vec<(PathBuf, usize)>,
}

impl Layers {
    /// Returns the cycles that are not just a module and its parent.
    pub fn wrong(&self) -> impl Iterator<Item = &Vec<PathBuf>> {
        self.circles.iter().filter(|circle| match &circle[..] {
            [one, other] => !is_child(one, other) && !is_child(other, one),
            _ => true,
        })
    }
}

/// Returns whether `child` is a file of a module that `parent` declares, judging by their paths.
fn is_child(child: &Path, parent: &Path) -> bool {
    let folder = match parent.file_name().and_then(|name| name.to_str()) {
        Some("mod.rs" | "lib.rs" | "main.rs") => parent.parent().map(Path::to_owned),
        _ => Some(parent.with_extension("")),
    };
    let home = match child.file_name().and_then(|name| name.to_str()) {
        Some("mod.rs") => child.parent().and_then(Path::parent),
        _ => child.parent(),
    };
    folder.as_deref() == home
}

/// Maximum number of lines in a file.
pub const LINES_MOST: usize = 500;

/// Returns the findings in all crates of the workspace at `root`, sorted by name.
///
/// # Errors
/// Fails if the workspace cannot be read or parsed.
pub fn survey(root: &Path) -> Result<Vec<Layers>, LayersError> {
    let mut all: Vec<Layers> = packages(root)?
        .iter()
        .map(|package| of_package(root, package))
        .collect::<Result<_, LayersError>>()?;
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// Returns cargo's metadata of the workspace's packages.
fn packages(root: &Path) -> Result<Vec<Value>, LayersError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root);
    let output = command.output().map_err(|error| LayersError::Cargo(error.to_string()))?;
    if !output.status.success() {
        return Err(LayersError::Cargo(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let told: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| LayersError::Cargo(error.to_string()))?;
    Ok(told["packages"].as_array().cloned().unwrap_or_default())
}

/// Returns the findings in a package's library and programs, without its tests.
fn of_package(root: &Path, package: &Value) -> Result<Layers, LayersError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let targets = package["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |target: &Value, kinds: &[&str]| {
        let kind = target["kind"].as_array().map(Vec::as_slice).unwrap_or_default();
        kind.iter().any(|kind| kinds.contains(&kind.as_str().unwrap_or_default()))
    };
    let library =
        targets.iter().find(|target| is(target, &["lib", "rlib", "cdylib", "staticlib", "proc-macro"]));
    let programs = targets.iter().filter(|target| is(target, &["bin"]));
    let mut found = Crate::default();
    let name = |target: &Value| text(&target["name"]).replace('-', "_");
    for target in library.into_iter().chain(programs) {
        let is_library = library.is_some_and(|library| std::ptr::eq(library, target));
        found.add(Path::new(&text(&target["src_path"])), is_library.then(|| name(target)))?;
    }
    Ok(Layers {
        name: text(&package["name"]),
        circles: circles(&found, root),
        long: long(&found.files, root),
    })
}

fn short(file: &File, root: &Path) -> PathBuf {
    file.path.strip_prefix(root).unwrap_or(&file.path).to_owned()
}

fn circles(found: &Crate, root: &Path) -> Vec<Vec<PathBuf>> {
    let edges = paths::edges(found).into_iter().filter(|(from, to)| from != to);
    let graph: DiGraphMap<usize, ()> = edges.collect();
    let together = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1);
    let named = together.map(|files| {
        let sorted: BTreeSet<PathBuf> = files.iter().map(|&file| short(&found.files[file], root)).collect();
        sorted.into_iter().collect()
    });
    let mut all: Vec<Vec<PathBuf>> = named.collect();
    all.sort();
    all
}

fn long(files: &[File], root: &Path) -> Vec<(PathBuf, usize)> {
    let long = files.iter().filter(|file| file.lines > LINES_MOST);
    let mut all: Vec<(PathBuf, usize)> = long.map(|file| (short(file, root), file.lines)).collect();
    all.sort();
    all
}
