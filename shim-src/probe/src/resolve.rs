//! `resolve SONAME...`: reports which file the loader uses for each name in this process.

use std::ffi::OsString;

use crate::library::{Library, Scope};
use crate::maps;
use crate::say::{Fields, Say};

/// Runs one step for each name.
pub fn run(names: &[OsString], say: &mut Say) {
    for name in names {
        let text = name.to_string_lossy();
        say.step(&text, |fields| {
            let library = Library::open(name, Scope::Local)?;
            place(library, fields)
        });
    }
}

/// Adds the object's path, and the file that is mapped at its address.
pub fn place(library: Library, fields: &mut Fields) -> Result<(), crate::say::Fault> {
    let (path, address) = library.place()?;
    fields.insert("path".into(), path.into());
    let files = maps::objects();
    if let Some(file) = files.iter().find(|file| file.start == address) {
        fields.insert("file".into(), file.json());
    }
    Ok(())
}
