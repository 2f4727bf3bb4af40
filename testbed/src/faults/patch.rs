//! Damages ELF files: changes names, versions, code and architectures of a real library in place.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use goblin::elf::Elf;
use goblin::elf::program_header::PT_LOAD;
use goblin::elf::section_header::{SHT_GNU_VERNEED, SHT_STRTAB};

/// First word of a fat binary.
const FATBIN: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
const FATBIN_HEADER: usize = 16;
const ENTRY: usize = 64;
const ENTRY_HEADER: usize = 4;
const ENTRY_PAYLOAD: usize = 8;
const ENTRY_ARCHITECTURE: usize = 28;
/// Size of an `Elf64_Verneed` in bytes.
const VERNEED_BYTES: usize = 16;

/// A file to be damaged, with the bytes to write and their offsets.
pub struct Patch {
    bytes: Vec<u8>,
    changes: Vec<(u64, Vec<u8>)>,
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    let word = bytes.get(at..at + 4).context("the file ends early")?;
    Ok(u32::from_le_bytes(word.try_into()?))
}

/// Returns the System V ABI's hash of a symbol name.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    })
}

impl Patch {
    /// Reads the file to be damaged.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        Ok(Self { bytes, changes: Vec::new() })
    }

    /// Creates a patch of a file whose bytes were already read.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes, changes: Vec::new() }
    }

    /// Writes the changes to the file at `path`, `offset` bytes behind their offsets here.
    pub fn write(self, path: &Path, offset: u64) -> Result<()> {
        let file = OpenOptions::new().write(true).open(path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        for (at, bytes) in self.changes {
            file.write_all_at(&bytes, at + offset).with_context(|| format!("change {}", path.display()))?;
        }
        Ok(())
    }

    fn elf(&self) -> Result<Elf<'_>> {
        Elf::parse(&self.bytes).context("read an ELF file")
    }

    /// Returns offset and bytes of the dynamic string table.
    fn strings(&self) -> Result<(u64, &[u8])> {
        let elf = self.elf()?;
        let section = elf
            .section_headers
            .iter()
            .find(|section| section.sh_type == SHT_STRTAB && section.sh_flags & 2 != 0)
            .context("find the dynamic strings")?;
        let (at, end) = (section.sh_offset as usize, (section.sh_offset + section.sh_size) as usize);
        Ok((section.sh_offset, self.bytes.get(at..end).context("read the dynamic strings")?))
    }

    /// Returns the offset of a complete string in the dynamic string table.
    fn string(&self, text: &str) -> Result<u64> {
        let (_, table) = self.strings()?;
        let wanted = [b"\0", text.as_bytes(), b"\0"].concat();
        let at = memchr::memmem::find(table, &wanted);
        Ok(at.with_context(|| format!("find the string {text}"))? as u64 + 1)
    }

    /// Replaces a string of the dynamic string table by another of the same length.
    pub fn rename(mut self, from: &str, to: &str) -> Result<Self> {
        if from.len() != to.len() {
            bail!("{from} and {to} differ in length");
        }
        let at = self.strings()?.0 + self.string(from)?;
        self.changes.push((at, to.as_bytes().to_vec()));
        Ok(self)
    }

    /// Replaces the first occurrence of a constant text by another of the same length.
    pub fn text(mut self, from: &str, to: &str) -> Result<Self> {
        if from.len() != to.len() {
            bail!("{from} and {to} differ in length");
        }
        let at =
            memchr::memmem::find(&self.bytes, from.as_bytes()).with_context(|| format!("find {from}"))?;
        self.changes.push((at as u64, to.as_bytes().to_vec()));
        Ok(self)
    }

    /// Changes the versions required of the library `file` to `version`, a string that the table must already
    /// contain.
    pub fn ask_for_version(mut self, file: &str, version: &str) -> Result<Self> {
        let name = self.string(version)? as u32;
        let elf = self.elf()?;
        let (_, strings) = self.strings()?;
        let section = elf
            .section_headers
            .iter()
            .find(|section| section.sh_type == SHT_GNU_VERNEED)
            .context("no versions")?;
        let mut changes = Vec::new();
        let mut at = section.sh_offset as usize;
        loop {
            let count = u32_at(&self.bytes, at)? >> 16;
            let of = u32_at(&self.bytes, at + 4)? as usize;
            let mine =
                strings.get(of..).is_some_and(|rest| rest.starts_with(&[file.as_bytes(), b"\0"].concat()));
            let mut aux = at + u32_at(&self.bytes, at + 8)? as usize;
            for _ in 0..count {
                if mine {
                    changes.push((aux as u64, hash(version).to_le_bytes().to_vec()));
                    changes.push((aux as u64 + 8, name.to_le_bytes().to_vec()));
                }
                aux += u32_at(&self.bytes, aux + 12)? as usize;
            }
            match u32_at(&self.bytes, at + 12)? as usize {
                0 => break,
                next => at += next.max(VERNEED_BYTES),
            }
        }
        if changes.is_empty() {
            bail!("nothing is asked of {file}");
        }
        self.changes.extend(changes);
        Ok(self)
    }

    /// Changes one required version, such as GLIBC_2.17, to one that does not exist by setting its first
    /// digit to 9.
    pub fn ask_for_newer(mut self, prefix: &str) -> Result<Self> {
        let (start, strings) = self.strings()?;
        let found = strings.split(|byte| *byte == 0).find(|text| text.starts_with(prefix.as_bytes()));
        let found = found.with_context(|| format!("find a version {prefix}"))?;
        let from = String::from_utf8(found.to_vec())?;
        let at = self.string(&from)?;
        let to = format!("{}9{}", prefix, &from[prefix.len() + 1..]);
        let old = hash(&from).to_le_bytes();
        let elf = self.elf()?;
        let section = elf
            .section_headers
            .iter()
            .find(|section| section.sh_type == SHT_GNU_VERNEED)
            .context("no versions")?;
        let range = section.sh_offset as usize..(section.sh_offset + section.sh_size) as usize;
        let words = self.bytes.get(range.clone()).context("read the versions")?;
        let hashes = words.chunks_exact(4).enumerate().filter(|(_, word)| **word == old);
        let mut changes = vec![(start + at, to.as_bytes().to_vec())];
        changes.extend(
            hashes.map(|(index, _)| ((range.start + 4 * index) as u64, hash(&to).to_le_bytes().to_vec())),
        );
        self.changes.extend(changes);
        Ok(self)
    }

    /// Returns the file offset of a virtual address.
    fn offset(&self, address: u64) -> Result<u64> {
        let elf = self.elf()?;
        let segment = elf
            .program_headers
            .iter()
            .find(|segment| segment.p_type == PT_LOAD && segment.vm_range().contains(&(address as usize)));
        let segment = segment.context("find the code")?;
        Ok(address - segment.p_vaddr + segment.p_offset)
    }

    /// Overwrites the start of a function with `code`.
    pub fn code(mut self, function: &str, code: &[u8]) -> Result<Self> {
        let elf = self.elf()?;
        let symbol = elf.dynsyms.iter().find(|symbol| elf.dynstrtab.get_at(symbol.st_name) == Some(function));
        let at = self.offset(symbol.with_context(|| format!("find {function}"))?.st_value)?;
        self.changes.push((at, code.to_vec()));
        Ok(self)
    }

    /// Overwrites the start of the library's own initialiser with `code`.
    pub fn initialiser(mut self, code: &[u8]) -> Result<Self> {
        let elf = self.elf()?;
        let address = elf.dynamic.as_ref().map(|dynamic| dynamic.info.init).filter(|address| *address != 0);
        let at = self.offset(address.context("there is no initialiser")?)?;
        self.changes.push((at, code.to_vec()));
        Ok(self)
    }

    /// Sets the architecture of every image in every fat binary to `architecture`.
    pub fn architectures(mut self, architecture: u32) -> Result<Self> {
        let elf = self.elf()?;
        let named = |section: &&goblin::elf::SectionHeader| {
            elf.shdr_strtab.get_at(section.sh_name) == Some(".nv_fatbin")
        };
        let section = elf.section_headers.iter().find(named).context("find .nv_fatbin")?;
        let (mut at, end) = (section.sh_offset as usize, (section.sh_offset + section.sh_size) as usize);
        let mut changes = Vec::new();
        while at + FATBIN_HEADER < end {
            if self.bytes[at..at + 4] != FATBIN {
                at += 8;
                continue;
            }
            let bytes = u32_at(&self.bytes, at + 8)? as usize;
            let last = at + FATBIN_HEADER + bytes;
            let mut entry = at + FATBIN_HEADER;
            while entry + ENTRY <= last {
                changes.push(((entry + ENTRY_ARCHITECTURE) as u64, architecture.to_le_bytes().to_vec()));
                let header = u32_at(&self.bytes, entry + ENTRY_HEADER)? as usize;
                let payload = u32_at(&self.bytes, entry + ENTRY_PAYLOAD)? as usize;
                entry += header.max(ENTRY) + payload;
            }
            at = last.next_multiple_of(8);
        }
        if changes.is_empty() {
            bail!("there is no fat binary");
        }
        self.changes.extend(changes);
        Ok(self)
    }

    /// Returns the number of bytes that the loader maps for the code segment, in whole pages. If that is the
    /// first segment, the loader maps as much as the whole library takes.
    pub fn code_bytes(&self) -> Result<u64> {
        let elf = self.elf()?;
        let mut loaded = elf.program_headers.iter().filter(|segment| segment.p_type == PT_LOAD).peekable();
        let first = loaded.peek().context("there is nothing to load")?.p_vaddr & !4095;
        let mut code = None;
        let mut end = 0;
        for segment in loaded {
            if segment.is_executable() && code.is_none() {
                code = Some(segment);
            }
            end = segment.p_vaddr + segment.p_memsz;
        }
        let code = code.context("there is no code")?;
        let start = code.p_vaddr & !4095;
        Ok(if start == first {
            end - first
        } else {
            (code.p_vaddr + code.p_filesz).next_multiple_of(4096) - start
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_loaders() {
        // From readelf --version-info of a real library.
        assert_eq!(hash("GLIBC_2.2.5"), 0x0969_1a75);
        assert_eq!(hash("GLIBC_2.14"), 0x0696_9194);
    }
}
