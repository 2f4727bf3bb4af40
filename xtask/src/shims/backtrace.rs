//! Takes the standard library's printer of backtraces out of a shim.
//!
//! The default panic hook can print a backtrace, so every object with a copy of std carries what reads
//! DWARF, decompresses it and demangles names: 200 KiB, twice the rest of the small shims. A shim never
//! prints one (`vgpu_abi::quiet_panics` replaces the hook), but the code stays reachable, and stable Rust
//! offers no standard library without it. All of it hangs on one function, the `Display` of the value that
//! the hook prints. Its body is replaced, in the compiled object, by one that returns `Ok(())`, and its
//! relocations are dropped; `--gc-sections` then removes what nothing else refers to.
//!
//! A compiler that gives the function another name leaves the object as it was: larger, and as right as
//! before. The limit on the size of all shims (`tests/shims.rs`) notices that.

use std::ops::Range;

use goblin::archive::Archive;
use goblin::elf::Elf;
use goblin::elf::section_header::section_header64::SIZEOF_SHDR;
use goblin::elf::section_header::{SHF_EXECINSTR, SHT_PROGBITS, SectionHeader};

/// Parts of the mangled name of `<std::sys::backtrace::BacktraceLock::print::DisplayBacktrace as
/// core::fmt::Display>::fmt`.
const NAME: [&str; 3] = ["13BacktraceLock5print", "16DisplayBacktrace", "7Display3fmt"];

/// Machine code of `xor eax, eax; ret`: the function returns `Result<(), fmt::Error>`, whose `Ok` is zero.
const RETURN_OK: [u8; 3] = [0x31, 0xc0, 0xc3];
/// Machine code of `int3`, which fills the rest of the body so that the frame description still covers all of
/// it.
const UNREACHABLE: u8 = 0xcc;
/// Offset of `sh_size` in a section header, in bytes.
const SH_SIZE: usize = 32;

/// Empties the backtrace printer in every object of the static library `archive`, and returns how many there
/// were.
pub fn remove(archive: &mut [u8]) -> Result<usize, goblin::error::Error> {
    let mut found = Vec::new();
    let members = Archive::parse(archive)?;
    for name in members.members() {
        let object = members.extract(name, archive)?;
        if !object.starts_with(b"\x7fELF") {
            continue;
        }
        let start = object.as_ptr().addr() - archive.as_ptr().addr();
        for printer in printers(&Elf::parse(object)?) {
            found.push(Printer {
                body: shift(&printer.body, start),
                sizes: printer.sizes.iter().map(|size| size + start).collect(),
            });
        }
    }
    for printer in &found {
        let (code, rest) = archive[printer.body.clone()].split_at_mut(RETURN_OK.len());
        code.copy_from_slice(&RETURN_OK);
        rest.fill(UNREACHABLE);
        for &size in &printer.sizes {
            archive[size..size + size_of::<u64>()].fill(0);
        }
    }
    Ok(found.len())
}

/// A function to empty, as offsets into an object.
struct Printer {
    body: Range<usize>,
    /// Offsets of the sizes of its relocation tables.
    sizes: Vec<usize>,
}

fn printers(elf: &Elf<'_>) -> Vec<Printer> {
    let matches = |section: &SectionHeader| {
        let name = elf.shdr_strtab.get_at(section.sh_name).unwrap_or_default();
        section.sh_type == SHT_PROGBITS
            && section.sh_flags & u64::from(SHF_EXECINSTR) != 0
            && section.sh_size >= RETURN_OK.len() as u64
            && NAME.iter().all(|part| name.contains(part))
            && name.ends_with(NAME[2])
    };
    let sections = elf.section_headers.iter().enumerate();
    sections
        .filter(|(_, section)| matches(section))
        .filter_map(|(index, section)| {
            let tables = elf.shdr_relocs.iter().map(|(table, _)| *table);
            let own = tables.filter(|&table| elf.section_headers[table].sh_info as usize == index);
            let header = elf.header.e_shoff as usize;
            let sizes = own.map(|table| header + table * SIZEOF_SHDR + SH_SIZE).collect();
            Some(Printer { body: section.file_range()?, sizes })
        })
        .collect()
}

fn shift(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}
