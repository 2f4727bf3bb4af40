//! Compares the shims' exports with the symbol lists, or with NVIDIA's libraries. Exports are read from the
//! objects, not from their manifest.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::shims::inspect::Object;
use crate::shims::manifest::Manifest;
use crate::shims::{LIBRARIES, ShimError, inspect, listed, object};
use crate::workspace::megabytes;

/// Comparison of a shim with the library that it replaces.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Path of NVIDIA's library with which the shim is compared.
    pub library: PathBuf,
    /// Number of names that NVIDIA's library exports.
    pub exported: usize,
    /// Names that the shim does not export, or not with the library's version node.
    pub missing: Vec<String>,
    /// Names or version nodes that the shim exports and the library does not.
    pub extra: Vec<String>,
    /// Whether nothing is missing, and nothing is extra unless the shim's list joins several versions of the
    /// library, as those of the driver's libraries do.
    pub ok: bool,
}

/// Compares each shim of `folder` with the library of the same SONAME in one of `others`, if there is one.
pub fn compare(folder: &Path, others: &[PathBuf]) -> Result<Vec<Comparison>, ShimError> {
    let mut comparisons = Vec::new();
    for library in &LIBRARIES {
        let paths = others.iter().map(|other| other.join(library.soname));
        for path in paths.filter(|path| path.exists()) {
            let (shim, real) = (object(&folder.join(library.soname))?, object(&path)?);
            let (missing, extra) = (difference(&real, &shim), difference(&shim, &real));
            let ok = missing.is_empty() && (extra.is_empty() || !library.versioned);
            comparisons.push(Comparison { library: path, exported: real.exports.len(), missing, extra, ok });
        }
    }
    Ok(comparisons)
}

/// Returns the names with their version nodes that `one` exports and `other` does not.
fn difference(one: &Object, other: &Object) -> Vec<String> {
    let text = |(name, node): (&String, &Option<String>)| match node {
        Some(node) => format!("{name}@@{node}"),
        None => name.clone(),
    };
    one.exports.iter().filter(|(name, node)| other.exports.get(*name) != Some(node)).map(text).collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (missing, extra) = (self.missing.len(), self.extra.len());
        write!(
            out,
            "{}: exports {}, the shim lacks {missing}, has {extra} more",
            self.library.display(),
            self.exported
        )?;
        let extra = if self.ok { &[][..] } else { &self.extra };
        for (kind, names) in [("missing", &self.missing[..]), ("extra", extra)] {
            for name in names {
                write!(out, "\n  {kind}: {name}")?;
            }
        }
        Ok(())
    }
}

/// Export counts of one shared object.
#[derive(Debug, Serialize)]
pub struct Row {
    /// SONAME of the shim, which is also its file name.
    pub library: &'static str,
    /// CUDA major version, for libraries with one object per major.
    pub major: Option<u8>,
    /// Number of names in the symbol list.
    pub listed: usize,
    /// Number of exported names, all with the right version node.
    pub exported: usize,
    /// Number of exported names that are more than a stub.
    pub implemented: usize,
    /// Names in the list that the object does not export.
    pub missing: Vec<String>,
    /// Exported names that are not in the list.
    pub extra: Vec<String>,
}

/// Comparison of all shims with their lists, one row per object.
#[derive(Debug, Serialize)]
pub struct Table {
    /// Whether no name is missing or extra.
    pub ok: bool,
    /// One row for each object.
    pub libraries: Vec<Row>,
    /// Total size of all objects in bytes.
    pub bytes: u64,
}

/// Compares the objects in `folder` with their symbol lists.
pub fn table(root: &Path, folder: &Path) -> Result<Table, ShimError> {
    let manifest = Manifest::read(folder)?.unwrap_or_default();
    let mut libraries = Vec::new();
    let mut bytes = 0;
    for library in &LIBRARIES {
        let symbols = listed(root, library)?;
        let names: BTreeSet<&str> = symbols.iter().map(|symbol| symbol.name.as_str()).collect();
        let object = object(&folder.join(library.soname))?;
        let owned = |name: &str| name.to_owned();
        let entry = manifest.entry(library.soname);
        bytes += entry.map_or(0, |entry| entry.bytes);
        libraries.push(Row {
            library: library.soname,
            major: library.major,
            listed: names.len(),
            exported: object.exports.values().filter(|node| node.as_deref() == library.node()).count(),
            implemented: entry.map_or(0, |entry| entry.implemented.len()),
            missing: inspect::missing(&object, &names).map(owned).collect(),
            extra: inspect::extra(&object, &names).map(owned).collect(),
        });
    }
    let ok = libraries
        .iter()
        .all(|row| row.missing.is_empty() && row.extra.is_empty() && row.exported == row.listed);
    Ok(Table { ok, libraries, bytes })
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let major = |row: &Row| row.major.map_or("-".to_owned(), |major| major.to_string());
        let columns = ["library", "major", "listed", "exported", "implemented", "missing", "extra"];
        write!(out, "{:<20}", columns[0])?;
        for name in &columns[1..] {
            write!(out, "{name:>13}")?;
        }
        writeln!(out)?;
        for row in &self.libraries {
            writeln!(
                out,
                "{:<20}{:>13}{:>13}{:>13}{:>13}{:>13}{:>13}",
                row.library,
                major(row),
                row.listed,
                row.exported,
                row.implemented,
                row.missing.len(),
                row.extra.len()
            )?;
            for (kind, names) in [("missing", &row.missing), ("extra", &row.extra)] {
                for name in names {
                    writeln!(out, "  {kind}: {name}")?;
                }
            }
        }
        write!(out, "all together {}", megabytes(self.bytes))
    }
}
