//! Reads the parts of an ELF file that the launcher needs: its kind, its loader, the libraries it needs, and
//! the location of its constants. Only the headers and the strings that they refer to are read, because a
//! CUDA backend has hundreds of megabytes. The files are untrusted, so every number in them is checked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use goblin::container::{Container, Ctx};
use goblin::elf::dynamic::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB};
use goblin::elf::header::{EM_X86_64, ET_DYN, ET_EXEC, Header};
use goblin::elf::program_header::{PF_R, PF_W, PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD};
use goblin::elf::section_header::SHT_NOBITS;
use goblin::elf::{Dynamic, ProgramHeader, SectionHeader};

/// Size of the largest ELF header in bytes, which is that of 64-bit files.
const HEADER_BYTES: usize = 64;
/// Maximum length of the loader's path in bytes: PATH_MAX, which includes the terminating zero.
const INTERPRETER_MAX: u64 = 4096;
/// Maximum size of a dynamic section in bytes.
const DYNAMIC_MAX: u64 = 1 << 20;
/// Maximum length of a string in the dynamic section that is read, such as a list of directories.
const TEXT_MAX: usize = 4096;
/// Maximum size of the section header table and of its names, in bytes.
const SECTIONS_MAX: u64 = 1 << 22;

/// A source of bytes at offsets: a file, or a slice in tests.
pub trait ReadAt {
    /// Fills `buffer` with the bytes from `offset` on. Fails with `UnexpectedEof` if the file ends first.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Reads up to `buffer.len()` bytes from `offset` on and returns their number.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

/// Reason why a file cannot be read as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file does not start with ELF's magic number.
    #[error("not an ELF file")]
    NotElf,
    /// Reading this part of the file failed.
    #[error("failed to read ELF {0}")]
    Read(&'static str, #[source] io::Error),
    /// The file ends before the end of this part.
    #[error("the file ends before its ELF {0}")]
    Short(&'static str),
    /// This part of the file has impossible values.
    #[error("damaged ELF {0}")]
    Damaged(&'static str),
}

impl ElfError {
    /// Converts an error of reading the part `what`.
    pub fn reading(what: &'static str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Short(what),
            _ => Self::Read(what, error),
        }
    }
}

/// A contiguous range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// Offset of the first byte.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// Facts from the headers of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// Whether this is a 64-bit x86-64 file, the only kind that can load the shims.
    pub x86_64: bool,
    /// Whether the file has the 64-bit class, for any machine.
    pub wide: bool,
    /// Whether this is an executable or a shared object, rather than a relocatable object or a core dump.
    pub loadable: bool,
    /// Path of the loader from PT_INTERP; `None` for static programs and for libraries.
    pub interpreter: Option<String>,
    /// The library's name, from `DT_SONAME`.
    pub soname: Option<String>,
    /// SONAMEs of the needed libraries (DT_NEEDED), in order.
    pub needed: Vec<String>,
    /// Directories from DT_RUNPATH, or from DT_RPATH if there is no DT_RUNPATH, as written: separated by `:`,
    /// and possibly with `$ORIGIN`.
    pub run_path: Option<String>,
}

impl Elf {
    /// Reads the headers of `file`.
    pub fn read(file: &impl ReadAt) -> Result<Self, ElfError> {
        let (header, ctx) = header(file)?;
        let segments = segments(file, &header, ctx)?;
        let interpreter = match segments.iter().find(|segment| segment.p_type == PT_INTERP) {
            Some(segment) => Some(interpreter(file, segment)?),
            None => None,
        };
        let names = dynamic_names(file, &segments, ctx)?;
        let wide = ctx.container == Container::Big;
        Ok(Self {
            x86_64: wide && header.e_machine == EM_X86_64,
            wide,
            loadable: matches!(header.e_type, ET_EXEC | ET_DYN),
            interpreter,
            soname: names.soname,
            needed: names.needed,
            run_path: names.run_path.or(names.old_path),
        })
    }
}

/// Returns the ranges with a program's string constants: `.rodata`, or the read-only segments if there are no
/// section headers. Also returns whether the file has a section named `also`, which is assumed for a file
/// that ends before its section headers.
pub fn constants(file: &impl ReadAt, also: &str) -> Result<(Vec<FileRange>, bool), ElfError> {
    let (header, ctx) = header(file)?;
    let mut found = Vec::new();
    let (sections, mut marked) = match sections(file, &header, ctx) {
        Ok(sections) => (sections, false),
        Err(ElfError::Short(_)) => (Vec::new(), true),
        Err(error) => return Err(error),
    };
    for (name, section) in sections {
        if name == b".rodata" && section.sh_type != SHT_NOBITS {
            found.push(FileRange { offset: section.sh_offset, bytes: section.sh_size });
        }
        marked |= name == also.as_bytes();
    }
    if found.is_empty() {
        found = segments(file, &header, ctx)?
            .iter()
            .filter(|segment| segment.p_type == PT_LOAD && segment.p_flags & (PF_R | PF_W | PF_X) == PF_R)
            .map(|segment| FileRange { offset: segment.p_offset, bytes: segment.p_filesz })
            .collect();
    }
    Ok((found, marked))
}

/// Section headers of a file, and the encoding of its numbers.
#[derive(Debug)]
pub struct Tables {
    /// All sections in order. Empty if the file has none.
    pub sections: Vec<SectionHeader>,
    /// Class and byte order of the file.
    pub ctx: Ctx,
}

/// Segments of a running program, which map its addresses to file offsets.
#[derive(Debug)]
pub struct Segments {
    segments: Vec<ProgramHeader>,
    /// Address of the program header table according to the file.
    table: u64,
}

impl Segments {
    /// Reads the program headers of `file`.
    pub fn read(file: &impl ReadAt) -> Result<Self, ElfError> {
        let (header, ctx) = header(file)?;
        let segments = segments(file, &header, ctx)?;
        let within = |segment: &&ProgramHeader| {
            segment.p_type == PT_LOAD
                && header.e_phoff.checked_sub(segment.p_offset).is_some_and(|at| at < segment.p_filesz)
        };
        // Program headers that are not mapped cannot be found from their address in memory.
        let load = segments.iter().find(within).ok_or(ElfError::Damaged("program headers"))?;
        let table = load.p_vaddr.wrapping_add(header.e_phoff - load.p_offset);
        Ok(Self { segments, table })
    }

    /// Returns the file offset of the `bytes` bytes at `address` in the process. `table` is the address of
    /// the process's program headers. Returns `None` if the bytes are not part of the file.
    pub fn offset(&self, table: u64, address: u64, bytes: u64) -> Option<u64> {
        let first = address.wrapping_sub(table.wrapping_sub(self.table));
        let last = first.checked_add(bytes.checked_sub(1)?)?;
        let (start, end) = (file_offset(&self.segments, first)?, file_offset(&self.segments, last)?);
        (end.checked_sub(start)? == bytes - 1).then_some(start)
    }
}

/// Checks that the file contains everything that the kernel and the loader map. An incomplete copy does not.
pub fn whole(file: &impl ReadAt) -> Result<(), ElfError> {
    const WHAT: &str = "segments";
    let (header, ctx) = header(file)?;
    let loads = segments(file, &header, ctx)?;
    for segment in loads.iter().filter(|segment| segment.p_type == PT_LOAD && segment.p_filesz > 0) {
        let last = segment.p_offset.checked_add(segment.p_filesz - 1).ok_or(ElfError::Damaged(WHAT))?;
        file.read_exact_at(&mut [0], last).map_err(|error| ElfError::reading(WHAT, error))?;
    }
    Ok(())
}

/// Reads the section headers of `file`.
pub fn tables(file: &impl ReadAt) -> Result<Tables, ElfError> {
    let (header, ctx) = header(file)?;
    let sections = sections(file, &header, ctx)?.into_iter().map(|(_, section)| section).collect();
    Ok(Tables { sections, ctx })
}

/// Returns the range of the section `name`, if the file has such a section with content.
pub fn section(file: &impl ReadAt, name: &str) -> Result<Option<FileRange>, ElfError> {
    let (header, ctx) = header(file)?;
    let found = sections(file, &header, ctx)?.into_iter().find(|(found, _)| found == name.as_bytes());
    Ok(found
        .filter(|(_, section)| section.sh_type != SHT_NOBITS)
        .map(|(_, section)| FileRange { offset: section.sh_offset, bytes: section.sh_size }))
}

/// Reads the content of a section. Fails if the section has more than `most` bytes.
pub fn content(
    file: &impl ReadAt,
    section: &SectionHeader,
    most: u64,
    what: &'static str,
) -> Result<Vec<u8>, ElfError> {
    let mut probe = [0; 1];
    // A size that the file does not have would be memory for nothing.
    if section.sh_size > 0 {
        let last = section.sh_offset.checked_add(section.sh_size - 1).ok_or(ElfError::Damaged(what))?;
        file.read_exact_at(&mut probe, last).map_err(|error| ElfError::reading(what, error))?;
    }
    read(file, section.sh_offset, section.sh_size, most, what)
}

fn header(file: &impl ReadAt) -> Result<(Header, Ctx), ElfError> {
    let mut bytes = [0; HEADER_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match file
            .read_at(&mut bytes[filled..], filled as u64)
            .map_err(|error| ElfError::reading("header", error))?
        {
            0 => break,
            more => filled += more,
        }
    }
    if !bytes.starts_with(goblin::elf::header::ELFMAG) {
        return Err(ElfError::NotElf);
    }
    let header = goblin::elf::Elf::parse_header(&bytes[..filled]).map_err(|_| ElfError::Damaged("header"))?;
    let container = header.container().map_err(|_| ElfError::Damaged("header"))?;
    let endian = header.endianness().map_err(|_| ElfError::Damaged("header"))?;
    Ok((header, Ctx::new(container, endian)))
}

fn read(
    file: &impl ReadAt,
    offset: u64,
    bytes: u64,
    most: u64,
    what: &'static str,
) -> Result<Vec<u8>, ElfError> {
    if bytes > most || offset.checked_add(bytes).is_none() {
        return Err(ElfError::Damaged(what));
    }
    let mut buffer = vec![0; bytes as usize];
    file.read_exact_at(&mut buffer, offset).map_err(|error| ElfError::reading(what, error))?;
    Ok(buffer)
}

fn segments(file: &impl ReadAt, header: &Header, ctx: Ctx) -> Result<Vec<ProgramHeader>, ElfError> {
    let what = "program headers";
    let size = ProgramHeader::size(ctx) as u64;
    let count = header.e_phnum;
    if count == 0 {
        return Ok(Vec::new());
    }
    if u64::from(header.e_phentsize) != size {
        return Err(ElfError::Damaged(what));
    }
    let table = read(file, header.e_phoff, u64::from(count) * size, u64::from(u16::MAX) * size, what)?;
    ProgramHeader::parse(&table, 0, usize::from(count), ctx).map_err(|_| ElfError::Damaged(what))
}

fn sections(
    file: &impl ReadAt,
    header: &Header,
    ctx: Ctx,
) -> Result<Vec<(Vec<u8>, SectionHeader)>, ElfError> {
    let what = "section headers";
    let size = SectionHeader::size(ctx) as u64;
    let count = u64::from(header.e_shnum);
    if header.e_shoff == 0 || count == 0 {
        return Ok(Vec::new());
    }
    if u64::from(header.e_shentsize) != size {
        return Err(ElfError::Damaged(what));
    }
    let table = read(file, header.e_shoff, count * size, SECTIONS_MAX, what)?;
    let parsed =
        SectionHeader::parse_from(&table, 0, count as usize, ctx).map_err(|_| ElfError::Damaged(what))?;
    let Some(strings) = parsed.get(usize::from(header.e_shstrndx)) else {
        return Err(ElfError::Damaged(what));
    };
    let strings = read(file, strings.sh_offset, strings.sh_size, SECTIONS_MAX, "section names")?;
    Ok(parsed
        .into_iter()
        .map(|section| (string(strings.get(section.sh_name..).unwrap_or_default()).to_vec(), section))
        .collect())
}

fn interpreter(file: &impl ReadAt, segment: &ProgramHeader) -> Result<String, ElfError> {
    let what = "interpreter";
    let bytes = read(file, segment.p_offset, segment.p_filesz, INTERPRETER_MAX, what)?;
    Ok(String::from_utf8_lossy(string(&bytes)).into_owned())
}

#[derive(Default)]
struct DynamicNames {
    soname: Option<String>,
    needed: Vec<String>,
    run_path: Option<String>,
    old_path: Option<String>,
}

fn dynamic_names(file: &impl ReadAt, segments: &[ProgramHeader], ctx: Ctx) -> Result<DynamicNames, ElfError> {
    let what = "dynamic section";
    let Some(segment) = segments.iter().find(|segment| segment.p_type == PT_DYNAMIC) else {
        return Ok(DynamicNames::default());
    };
    let bytes = read(file, segment.p_offset, segment.p_filesz, DYNAMIC_MAX, what)?;
    // goblin reads the section where the program header says it is in the bytes it is given: at their start
    // here.
    let alone = [ProgramHeader { p_offset: 0, ..segment.clone() }];
    let dynamic = Dynamic::parse(&bytes, &alone, ctx).map_err(|_| ElfError::Damaged(what))?;
    let entries = dynamic.map(|dynamic| dynamic.dyns).unwrap_or_default();
    let value = |tag| entries.iter().find(|entry| entry.d_tag == tag).map(|entry| entry.d_val);

    let mut names = DynamicNames::default();
    let wanted = || {
        let tags = [DT_NEEDED, DT_SONAME, DT_RUNPATH, DT_RPATH];
        entries.iter().filter(move |entry| tags.contains(&entry.d_tag))
    };
    if wanted().next().is_none() {
        return Ok(names);
    }
    let (Some(address), Some(length)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
        return Err(ElfError::Damaged(what));
    };
    let Some(strings) = file_offset(segments, address) else {
        return Err(ElfError::Damaged("string table"));
    };
    for entry in wanted() {
        let start = strings.checked_add(entry.d_val).filter(|_| entry.d_val < length);
        let start = start.ok_or(ElfError::Damaged("string table"))?;
        let mut name = [0; TEXT_MAX];
        let most = TEXT_MAX.min((length - entry.d_val) as usize);
        let got = file
            .read_at(&mut name[..most], start)
            .map_err(|error| ElfError::reading("string table", error))?;
        let name = String::from_utf8_lossy(string(&name[..got])).into_owned();
        match entry.d_tag {
            DT_NEEDED => names.needed.push(name),
            DT_RUNPATH => names.run_path = Some(name),
            DT_RPATH => names.old_path = Some(name),
            _ => names.soname = Some(name),
        }
    }
    Ok(names)
}

/// Returns the file offset of the byte that the loader maps to `address`.
fn file_offset(segments: &[ProgramHeader], address: u64) -> Option<u64> {
    segments.iter().filter(|segment| segment.p_type == PT_LOAD).find_map(|segment| {
        let within = address.checked_sub(segment.p_vaddr).filter(|within| *within < segment.p_filesz)?;
        segment.p_offset.checked_add(within)
    })
}

/// Returns the bytes before the first zero.
fn string(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
