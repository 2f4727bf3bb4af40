//! Resolves the libraries that a program or a library needs: the files that the loader uses, and imports that
//! no library provides.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::symbols::{Import, Meeting, Symbols};
use crate::embedded::OBJECTS;
use crate::program::elf::{self, Elf, ElfError};
use crate::program::search::{Reason, Search};

/// Maximum number of libraries that are read for one process.
const MOST: usize = 64;
/// Maximum number of missing names in a message.
const SHOWN: usize = 8;

/// A library that a program needs, directly or through another library.
pub struct NeededLibrary {
    /// SONAME of the library.
    pub soname: String,
    /// Path of the file and the rule that led to it. `None` means that the library is one of vgpu-run's.
    pub file: Option<(PathBuf, Reason)>,
    /// Whether the program itself needs the library, rather than another library.
    pub direct: bool,
    /// Imports and exports of the library.
    pub symbols: Symbols,
}

/// Reason why a needed library cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Unmet {
    /// The loader finds no file with this SONAME.
    #[error("it needs {0}, which cannot be found")]
    Absent(String),
    /// The file exists and cannot be opened.
    #[error("it needs {soname}, and {} cannot be read: {error}", .path.display())]
    Refused {
        /// SONAME of the library.
        soname: String,
        /// Path of the file.
        path: PathBuf,
        /// Error of opening the file.
        error: io::Error,
    },
    /// The file is not a complete library.
    #[error("it needs {soname}, and {} is damaged: {}", .path.display(), reason(.error))]
    Damaged {
        /// SONAME of the library.
        soname: String,
        /// Path of the file.
        path: PathBuf,
        /// Error of reading the file.
        error: ElfError,
    },
}

/// Returns why a file cannot be read, or what is wrong with it.
fn reason(error: &ElfError) -> String {
    match error {
        ElfError::Read(_, source) => source.to_string(),
        error => error.to_string(),
    }
}

/// Returns the libraries with these SONAMEs and all libraries that they need in turn. With `ours`, vgpu-run's
/// libraries take precedence over others of the same name.
pub fn libraries(needed: &[String], search: &Search, ours: bool) -> Result<Vec<NeededLibrary>, Unmet> {
    let mut found: Vec<NeededLibrary> = Vec::new();
    let mut open: Vec<(String, bool)> = needed.iter().map(|name| (name.clone(), true)).collect();
    while let Some((soname, direct)) = open.pop() {
        if found.iter().any(|library| library.soname == soname) || found.len() >= MOST {
            continue;
        }
        if let Some(shim) = OBJECTS.iter().find(|object| object.soname == soname && ours) {
            let symbols = Symbols::read(&Slice(shim.bytes)).unwrap_or_default();
            found.push(NeededLibrary { soname, file: None, direct, symbols });
            continue;
        }
        let Some((path, reason)) = search.files(&soname).into_iter().next() else {
            return Err(match search.refused(&soname) {
                Some((path, error)) => Unmet::Refused { soname, path, error },
                None => Unmet::Absent(soname),
            });
        };
        match read(&path) {
            Ok((more, symbols)) => {
                open.extend(more.into_iter().map(|name| (name, false)));
                found.push(NeededLibrary { soname, file: Some((path, reason)), direct, symbols });
            }
            Err(ElfError::Read(_, error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Unmet::Refused { soname, path, error });
            }
            Err(error) => return Err(Unmet::Damaged { soname, path, error }),
        }
    }
    Ok(found)
}

/// Reads the needed SONAMEs and the symbols of a file.
fn read(path: &Path) -> Result<(Vec<String>, Symbols), ElfError> {
    let file = vgpu_paths::open_regular(path).map_err(|error| ElfError::Read("file", error))?;
    Ok((Elf::read(&file)?.needed, Symbols::read(&file)?))
}

/// Bytes in this program, readable like a file.
struct Slice(&'static [u8]);

impl elf::ReadAt for Slice {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(buffer, offset)? {
            got if got == buffer.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }
}

/// Imports of a file that its libraries do not provide.
#[derive(Default)]
pub struct Lacking<'a> {
    /// Missing names by the library in which the linker saw them; the key is empty for names without a
    /// version node.
    pub absent: BTreeMap<String, Vec<&'a Import>>,
    /// Names that exist only under other version nodes.
    pub other_node: Vec<&'a Import>,
}

/// Collects the imports of a file that none of `libraries` provides.
pub fn lacking<'a>(own: &'a Symbols, libraries: &[&Symbols]) -> Lacking<'a> {
    let mut lacking = Lacking::default();
    for import in &own.imports {
        let mut meetings = libraries.iter().map(|symbols| symbols.meets(import));
        let mut other_node = false;
        if meetings.any(|meeting| {
            other_node |= meeting == Meeting::OtherNode;
            meeting == Meeting::Met
        }) {
            continue;
        }
        if other_node {
            lacking.other_node.push(import);
        } else {
            let from = import.version.as_ref().map(|(_, file)| file.clone()).unwrap_or_default();
            lacking.absent.entry(from).or_default().push(import);
        }
    }
    lacking
}

/// Lists the first `SHOWN` names, and the number of the remaining ones.
pub fn shown(imports: &[&Import]) -> String {
    let names: Vec<_> = imports.iter().take(SHOWN).map(|import| import.name.as_str()).collect();
    let more = imports.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_directory_of_a_librarys_name_is_what_the_loader_finds() {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.join("libx.so.1")).unwrap();
        let search = Search { folders: vec![scratch.path().to_owned()], ..Search::default() };
        let unmet = libraries(&["libx.so.1".to_owned()], &search, false).err().unwrap();
        let said = unmet.to_string();
        assert!(said.ends_with("is a directory, not a regular file"), "{said}");
    }
}
