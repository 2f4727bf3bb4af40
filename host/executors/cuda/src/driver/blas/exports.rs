//! Names of the functions that a library exports, read from its file. The library is not loaded: cuBLAS has
//! several hundred megabytes, of which this reads the table of symbols.

use std::collections::HashSet;
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use goblin::container::Ctx;
use goblin::elf::header::EM_X86_64;
use goblin::elf::section_header::{SHN_UNDEF, SHT_DYNSYM};
use goblin::elf::sym::Sym;
use goblin::elf::{Elf, SectionHeader, Symtab};
use goblin::strtab::Strtab;

/// Size of the header of a file for a 64-bit machine, in bytes.
const HEADER: u64 = 64;
/// Size of the largest table that is read, in bytes. Those of cuBLAS have a tenth of this.
const TABLE_MAX: u64 = 16 << 20;

/// Returns the names of the functions and variables that the library at `path` exports.
pub(super) fn exports(path: &Path) -> Result<HashSet<String>, String> {
    read(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn read(path: &Path) -> Result<HashSet<String>, Box<dyn Error>> {
    let file = File::open(path)?;
    let part = |offset: u64, bytes: u64| -> Result<Vec<u8>, Box<dyn Error>> {
        if bytes > TABLE_MAX {
            return Err("a table of it is too large".into());
        }
        let mut part = vec![0; bytes as usize];
        file.read_exact_at(&mut part, offset)?;
        Ok(part)
    };
    let header = Elf::parse_header(&part(0, HEADER)?)?;
    if header.e_machine != EM_X86_64 {
        return Err("it is for another kind of machine".into());
    }
    let ctx = Ctx::new(header.container()?, header.endianness()?);
    let count = usize::from(header.e_shnum);
    let table = part(header.e_shoff, (count * SectionHeader::size(ctx)) as u64)?;
    let sections = SectionHeader::parse_from(&table, 0, count, ctx)?;
    let symbols = sections.iter().find(|section| section.sh_type == SHT_DYNSYM);
    let symbols = symbols.ok_or("it has no table of symbols")?;
    let names = sections.get(symbols.sh_link as usize).ok_or("it has no names of symbols")?;
    let [symbols, names] = [symbols, names].map(|section| part(section.sh_offset, section.sh_size));
    let (symbols, names) = (symbols?, names?);
    let names = Strtab::parse(&names, 0, names.len(), 0)?;
    let symbols = Symtab::parse(&symbols, 0, symbols.len() / Sym::size(ctx.container), ctx)?;
    let defined = symbols.iter().filter(|symbol| symbol.st_shndx != SHN_UNDEF as usize);
    Ok(defined.filter_map(|symbol| names.get_at(symbol.st_name)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exports_of_the_c_library_are_read() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps.lines().filter_map(|line| line.split_whitespace().last());
        let library = library.into_iter().find(|path| path.contains("libc.so")).unwrap();
        let names = exports(Path::new(library)).unwrap();
        assert!(names.contains("malloc") && names.contains("write"));
        assert!(!names.contains("cublasCreate_v2") && !names.contains("__tls_get_addr"), "it imports this");
    }

    #[test]
    fn files_that_are_no_libraries_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library.so");
        let why = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            exports(&path).unwrap_err()
        };
        assert!(why(b"short").contains("failed to fill whole buffer"));
        assert!(why(&[0; 4096]).contains("magic"), "{}", why(&[0; 4096]));
        // The header of a library alone, whose tables are beyond its end.
        let library = std::fs::read("/proc/self/exe").unwrap();
        assert!(why(&library[..4096]).contains("library.so: "));
        assert!(exports(Path::new("/does/not/exist")).unwrap_err().contains("No such file"));
    }
}
