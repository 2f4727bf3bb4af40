//! Reads the names that a static library defines, which are those that a shim implements.

use std::collections::BTreeSet;

use goblin::archive::Archive;
use goblin::elf::Elf;
use goblin::elf::section_header::SHN_UNDEF;
use goblin::elf::sym::{STB_GLOBAL, STB_WEAK, STV_HIDDEN, STV_INTERNAL};

/// Reasons why a static library cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("read {member}")]
pub struct ArchiveError {
    member: String,
    source: goblin::error::Error,
}

/// Returns the names that members of the archive `bytes` define with global visibility.
pub fn defined(bytes: &[u8]) -> Result<BTreeSet<String>, ArchiveError> {
    let of = |member: &str| {
        let member = member.to_owned();
        move |source| ArchiveError { member, source }
    };
    let archive = Archive::parse(bytes).map_err(of("the archive's index"))?;
    let mut names = BTreeSet::new();
    for member in archive.members() {
        let object = archive.extract(member, bytes).map_err(of(member))?;
        // rustc's own metadata is a member too.
        if !object.starts_with(b"\x7fELF") {
            continue;
        }
        let elf = Elf::parse(object).map_err(of(member))?;
        for symbol in &elf.syms {
            let visible = !matches!(symbol.st_visibility(), STV_HIDDEN | STV_INTERNAL);
            let global = matches!(symbol.st_bind(), STB_GLOBAL | STB_WEAK);
            if global
                && visible
                && symbol.st_shndx != SHN_UNDEF as usize
                && let Some(name) = elf.strtab.get_at(symbol.st_name)
            {
                names.insert(name.to_owned());
            }
        }
    }
    Ok(names)
}
