//! `resolve SONAME...`: reports which file the loader uses for each name in this process.

use std::ffi::OsString;

use vgpu_probe_steps::{Fault, Resolved};

use crate::library::{Library, Scope};
use crate::maps;
use crate::say::Say;

/// Runs one step for each name.
pub fn show_addresses(names: &[OsString], say: &mut Say) {
    for name in names {
        say.named(&name.to_string_lossy(), |said| {
            *said = place(Library::open(name, Scope::Local)?)?;
            Ok(())
        });
    }
}

/// Returns the object's path, and the file that is mapped at its address.
pub fn place(library: Library) -> Result<Resolved, Fault> {
    let (path, address) = library.place()?;
    let file = maps::objects().into_iter().find(|found| found.start == address).map(|found| found.file);
    Ok(Resolved { path, file })
}
