//! Reads from a cubin, an ELF image for one architecture, what the guest needs: the architecture, and the
//! parameters of its kernels.
//!
//! Source: cubins of ptxas 12.4 to 13.0, read byte by byte. A kernel NAME has a section `.text.NAME`,
//! and its attributes are in `.nv.info.NAME`: records of format (1: nothing, 2: a byte, 3: 16 bits, 4: 16
//! bits of length, then data), attribute, value. Attribute 0x17 is a parameter of up to 16 KiB: u32, u16
//! ordinal, u16 offset, u32 with the size from bit 18 on; 0x45 one of any size: u32, u16 ordinal, u16 offset,
//! u16 size, u16. A symbol of a `__managed__` variable has the bit 4 in `st_other`.

use std::collections::HashMap;

use crate::layout::{Layout, LayoutError, Param};
use crate::ptx::Specific;

/// `e_machine` of a cubin.
const EM_CUDA: u16 = 190;
/// The first ABI version whose `e_flags` hold the architecture in the second byte. Older ones use the first
/// byte.
const NEW_FLAGS: u8 = 8;
const HEADER: usize = 64;
const SECTION: usize = 64;
const SHT_NOBITS: u32 = 8;
const PARAM: u8 = 0x17;
const PARAM_V2: u8 = 0x45;
const SHT_SYMTAB: u32 = 2;
const SYMBOL: usize = 24;
/// Symbol type of a variable.
const STT_OBJECT: u8 = 1;
/// Bit of `st_other` that marks a variable shared by host and kernels.
const STO_MANAGED: u8 = 0x04;

/// Why an image is not a usable cubin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CubinError {
    /// The image is not a 64-bit ELF image for NVIDIA's GPUs.
    #[error("the image is no cubin")]
    Kind,
    /// A table or a section extends beyond the end of the image.
    #[error("the image is cut off")]
    Short,
    /// The attributes of a kernel are malformed.
    #[error("failed to read the attributes of kernel {0}")]
    Attributes(String),
    /// The parameters of a kernel break a rule of their layout.
    #[error("kernel {kernel} has unusable parameters")]
    Layout {
        /// Mangled name of the kernel.
        kernel: String,
        /// Rule of the layout that the parameters break.
        #[source]
        source: LayoutError,
    },
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    array(bytes, at).map(u64::from_le_bytes).and_then(|value| usize::try_from(value).ok())
}

struct Section {
    name: usize,
    kind: u32,
    offset: usize,
    bytes: usize,
    /// In a symbol table's header, the index of the section that contains the names.
    link: usize,
}

/// Returns offset and count of the section headers, and the size of each in bytes, from the ELF header.
/// Returns `None` if the headers are too short.
fn table(header: &[u8]) -> Option<(usize, usize, usize)> {
    let size = usize::from(u16_at(header, 58)?);
    let count = usize::from(u16_at(header, 60)?);
    (size >= SECTION).then_some(())?;
    Some((usize_at(header, 40)?, count, size))
}

fn section(elf: &[u8], index: usize) -> Option<Section> {
    let (start, count, size) = table(elf)?;
    if index >= count {
        return None;
    }
    let at = start.checked_add(index.checked_mul(size)?)?;
    Some(Section {
        name: u32_at(elf, at)? as usize,
        kind: u32_at(elf, at + 4)?,
        offset: usize_at(elf, at + 24)?,
        bytes: usize_at(elf, at + 32)?,
        link: u32_at(elf, at + 40)? as usize,
    })
}

fn is_cubin(header: &[u8]) -> bool {
    header.starts_with(b"\x7fELF\x02\x01") && u16_at(header, 18) == Some(EM_CUDA)
}

/// Returns the architecture of the image, as in `sm_NUMBER`. `header` contains at least the first 64 bytes;
/// fewer are [`CubinError::Short`].
pub fn arch(header: &[u8]) -> Result<u32, CubinError> {
    if !is_cubin(header) {
        return Err(CubinError::Kind);
    }
    let flags = u32_at(header, 48).ok_or(CubinError::Short)?;
    Ok(if header[8] >= NEW_FLAGS { flags >> 8 & 0xff } else { flags & 0xff })
}

/// Length of an image, as far as its headers have been read. A program passes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// At least this many bytes must be read to know the length.
    More(usize),
    /// Length of the image in bytes.
    Known(usize),
}

/// Derives the length of the image from its headers: the end of its last section or table. `known` is the
/// start of the image, as far as it may be read.
pub fn length(known: &[u8]) -> Result<Length, CubinError> {
    if known.len() < HEADER {
        return Ok(Length::More(HEADER));
    }
    if !is_cubin(known) {
        return Err(CubinError::Kind);
    }
    let bad = || CubinError::Short;
    let (start, count, size) = table(known).ok_or_else(bad)?;
    let mut end = count.checked_mul(size).and_then(|bytes| bytes.checked_add(start)).ok_or_else(bad)?;
    if known.len() < end {
        return Ok(Length::More(end));
    }
    let programs =
        usize::from(u16_at(known, 54).ok_or_else(bad)?) * usize::from(u16_at(known, 56).ok_or_else(bad)?);
    let program_end = usize_at(known, 32).and_then(|at| at.checked_add(programs)).ok_or_else(bad)?;
    end = end.max(program_end).max(HEADER);
    for index in 0..count {
        let section = section(known, index).ok_or_else(bad)?;
        if section.kind != SHT_NOBITS {
            end = end.max(section.offset.checked_add(section.bytes).ok_or_else(bad)?);
        }
    }
    Ok(Length::Known(end))
}

/// Returns the sections of the image with their names, in the order of their table.
fn named_sections(elf: &[u8]) -> Result<Vec<(Section, &[u8])>, CubinError> {
    if !is_cubin(elf) {
        return Err(CubinError::Kind);
    }
    let sections = || -> Option<Vec<_>> {
        let (_, count, _) = table(elf)?;
        let names = contents(elf, &section(elf, usize::from(u16_at(elf, 62)?))?)?;
        let named = |index| {
            let section = section(elf, index)?;
            let name = names.get(section.name..)?.split(|&byte| byte == 0).next()?;
            Some((section, name))
        };
        (0..count).map(named).collect()
    };
    sections().ok_or(CubinError::Short)
}

/// Returns the kernels of the image with their parameters.
pub fn kernels(elf: &[u8]) -> Result<Vec<(String, Layout)>, CubinError> {
    let mut kernels = Vec::new();
    let mut infos = HashMap::new();
    for (section, name) in named_sections(elf)? {
        if let Some(kernel) = name.strip_prefix(b".text.") {
            kernels.push(String::from_utf8_lossy(kernel).into_owned());
        } else if let Some(kernel) = name.strip_prefix(b".nv.info.") {
            infos.entry(kernel).or_insert(contents(elf, &section).ok_or(CubinError::Short)?);
        }
    }
    kernels
        .into_iter()
        .map(|kernel| {
            let info = infos.get(kernel.as_bytes()).copied().unwrap_or_default();
            let layout = params(info, &kernel)?;
            Ok((kernel, layout))
        })
        .collect()
}

/// Returns the name of the first variable that is shared by host and kernels (`__managed__`), if there is
/// one.
pub fn managed(elf: &[u8]) -> Result<Option<String>, CubinError> {
    if !is_cubin(elf) {
        return Err(CubinError::Kind);
    }
    let short = || CubinError::Short;
    let (_, count, _) = table(elf).ok_or_else(short)?;
    for index in 0..count {
        let symbols = section(elf, index).ok_or_else(short)?;
        if symbols.kind != SHT_SYMTAB {
            continue;
        }
        let names = section(elf, symbols.link).ok_or_else(short)?;
        let names = contents(elf, &names).ok_or_else(short)?;
        for symbol in contents(elf, &symbols).ok_or_else(short)?.chunks_exact(SYMBOL) {
            if symbol[4] & 0xf == STT_OBJECT && symbol[5] & STO_MANAGED != 0 {
                let name = u32_at(symbol, 0).and_then(|at| names.get(at as usize..)).ok_or_else(short)?;
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                return Ok(Some(String::from_utf8_lossy(name).into_owned()));
            }
        }
    }
    Ok(None)
}

/// Returns the number of bytes of device memory that the image's variables take beside those that it
/// contains: the sections without contents, except shared memory, which belongs to a block and not to the
/// module.
pub fn variable_bytes(elf: &[u8]) -> Result<u64, CubinError> {
    let mut sum = 0_u64;
    for (section, name) in named_sections(elf)? {
        let shared = name.starts_with(b".nv.shared") || name.starts_with(b".nv.reservedSmem");
        if section.kind == SHT_NOBITS && !shared {
            sum = sum.saturating_add(section.bytes as u64);
        }
    }
    Ok(sum)
}

fn contents<'a>(elf: &'a [u8], section: &Section) -> Option<&'a [u8]> {
    if section.kind == SHT_NOBITS {
        return Some(&[]);
    }
    elf.get(section.offset..section.offset.checked_add(section.bytes)?)
}

/// Reads the parameters from a kernel's attributes.
fn params(mut info: &[u8], kernel: &str) -> Result<Layout, CubinError> {
    let bad = || CubinError::Attributes(kernel.to_owned());
    let mut params: Vec<(u16, Param)> = Vec::new();
    while !info.is_empty() {
        let &[format, attribute, low, high] = info.first_chunk::<4>().ok_or_else(bad)?;
        info = &info[4..];
        if format != 4 {
            continue;
        }
        let (value, rest) =
            info.split_at_checked(usize::from(u16::from_le_bytes([low, high]))).ok_or_else(bad)?;
        info = rest;
        let size = match attribute {
            PARAM => u32_at(value, 8).ok_or_else(bad)? >> 18,
            PARAM_V2 => u32::from(u16_at(value, 8).ok_or_else(bad)?),
            _ => continue,
        };
        let ordinal = u16_at(value, 4).ok_or_else(bad)?;
        let offset = u32::from(u16_at(value, 6).ok_or_else(bad)?);
        params.push((ordinal, Param { offset, size }));
    }
    params.sort_unstable_by_key(|param| param.0);
    let mut layout = Layout::default();
    for (index, (ordinal, param)) in params.into_iter().enumerate() {
        if usize::from(ordinal) != index {
            return Err(bad());
        }
        layout.put(param).map_err(|source| CubinError::Layout { kernel: kernel.to_owned(), source })?;
    }
    Ok(layout)
}

/// Returns whether a cubin for `sm` runs on a device. It runs on its own architecture and on later ones with
/// the same major number; if it is for one architecture alone, only there.
pub fn runs_on(sm: u32, specific: Specific, device: u32) -> bool {
    match specific {
        Specific::Architecture => sm == device,
        _ => sm / 10 == device / 10 && sm <= device,
    }
}

/// Builds cubins for tests, here and in the tests of images.
pub mod build {
    use super::{EM_CUDA, HEADER, PARAM, PARAM_V2, Param, SECTION, SHT_NOBITS, SHT_SYMTAB, SYMBOL};

    /// A kernel of a test: its name, its parameters, and whether they are encoded in the newer form.
    pub type Kernel = (String, Vec<Param>, bool);

    fn info(params: &[Param], newer: bool) -> Vec<u8> {
        // Records of the other formats stand before and after the parameters, which are in descending order,
        // as ptxas has them.
        let mut info = vec![4, 0x37, 4, 0, 0x82, 0, 0, 0];
        for (ordinal, param) in params.iter().enumerate().rev() {
            let attribute = if newer || param.size >= 1 << 14 { PARAM_V2 } else { PARAM };
            info.extend([4, attribute, 12, 0, 0, 0, 0, 0]);
            info.extend((ordinal as u16).to_le_bytes());
            info.extend((param.offset as u16).to_le_bytes());
            if attribute == PARAM {
                info.extend((param.size << 18 | 0x1f000).to_le_bytes());
            } else {
                info.extend((param.size as u16).to_le_bytes());
                info.extend([0, 0]);
            }
        }
        info.extend([3, 0x19, 0, 0, 1, 0x5f, 0, 0, 2, 0x40, 0, 0]);
        info
    }

    /// Returns a cubin with these kernels for an architecture.
    pub fn cubin(kernels: &[Kernel], sm: u8) -> Vec<u8> {
        cubin_with(kernels, &[], sm)
    }

    /// Size of each variable of [`cubin_with`] in bytes.
    pub const VARIABLE_BYTES: u64 = 4096;

    /// Returns a cubin with these kernels and variables, each a name and `st_other`, for an architecture.
    pub fn cubin_with(kernels: &[Kernel], variables: &[(&str, u8)], sm: u8) -> Vec<u8> {
        let (mut texts, mut symbols) = (vec![0], vec![0; SYMBOL]);
        for (name, other) in variables {
            symbols.extend((texts.len() as u32).to_le_bytes());
            // The byte says that the symbol is a global variable.
            symbols.extend([0x11, *other]);
            symbols.resize(symbols.len().next_multiple_of(SYMBOL), 0);
            texts.extend(name.as_bytes());
            texts.push(0);
        }
        let mut names = vec![0];
        let mut sections = vec![(0, 0, 0, Vec::new())];
        let mut add_sized = |name: &str, kind: u32, bytes: u64, contents: Vec<u8>| {
            sections.push((names.len() as u32, kind, bytes, contents));
            names.extend(name.as_bytes());
            names.push(0);
        };
        // These sections take memory that is not in the image.
        add_sized(".nv.shared", SHT_NOBITS, 1 << 40, Vec::new());
        add_sized(".nv.global", SHT_NOBITS, variables.len() as u64 * VARIABLE_BYTES, Vec::new());
        let mut add =
            |name: &str, kind, contents: Vec<u8>| add_sized(name, kind, contents.len() as u64, contents);
        for (name, params, newer) in kernels {
            add(&format!(".text.{name}"), 1, vec![0xee; 32]);
            add(&format!(".nv.info.{name}"), 0x7000_0000, info(params, *newer));
        }
        add(".strtab", 3, texts);
        add(".symtab", SHT_SYMTAB, symbols);
        add(".shstrtab", 3, Vec::new());
        let last = sections.last_mut().unwrap();
        (last.2, last.3) = (names.len() as u64, names);
        let mut elf = vec![0; HEADER];
        elf[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x41\x08");
        elf[18..20].copy_from_slice(&EM_CUDA.to_le_bytes());
        elf[48..52].copy_from_slice(&(0x0600_0004_u32 | u32::from(sm) << 8).to_le_bytes());
        let mut headers = Vec::new();
        for (name, kind, bytes, contents) in &sections {
            let mut header = [0; SECTION];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(elf.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&bytes.to_le_bytes());
            // The section before contains the names of the symbols.
            header[40..44].copy_from_slice(&(headers.len() as u32).saturating_sub(1).to_le_bytes());
            headers.push(header);
            elf.extend(contents);
        }
        let start = elf.len() as u64;
        elf[40..48].copy_from_slice(&start.to_le_bytes());
        elf[58..60].copy_from_slice(&(SECTION as u16).to_le_bytes());
        elf[60..62].copy_from_slice(&(sections.len() as u16).to_le_bytes());
        elf[62..64].copy_from_slice(&(sections.len() as u16 - 1).to_le_bytes());
        elf.extend(headers.concat());
        elf
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `.nv.info.small` of ptxas 13.0 for a kernel (u64, u32, 24 bytes aligned to 8, u8, f64).
    const SMALL: &[u8] = &[
        0x04, 0x37, 0x04, 0x00, 0x82, 0, 0, 0, 0x04, 0x17, 0x0c, 0, 0, 0, 0, 0, 0x04, 0, 0x30, 0, 0, 0xf0,
        0x21, 0, 0x04, 0x17, 0x0c, 0, 0, 0, 0, 0, 0x03, 0, 0x28, 0, 0, 0xf0, 0x05, 0, 0x04, 0x17, 0x0c, 0, 0,
        0, 0, 0, 0x02, 0, 0x10, 0, 0, 0xf0, 0x61, 0, 0x04, 0x17, 0x0c, 0, 0, 0, 0, 0, 0x01, 0, 0x08, 0, 0,
        0xf0, 0x11, 0, 0x04, 0x17, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x21, 0, 0x03, 0x50, 0, 0, 0x03,
        0x1b, 0xff, 0,
    ];
    /// The parameters of `.nv.info.big`: 20,000 bytes and a u64.
    const BIG: &[u8] = &[
        0x04, 0x45, 0x0c, 0, 0, 0, 0, 0, 0x01, 0, 0x20, 0x4e, 0x08, 0, 0, 0, 0x04, 0x45, 0x0c, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0x20, 0x4e, 0, 0,
    ];

    #[test]
    fn ptxas_attributes_are_read() {
        let places = |info| {
            let layout = params(info, "k").unwrap();
            layout.params.iter().map(|param| (param.offset, param.size)).collect::<Vec<_>>()
        };
        assert_eq!(places(SMALL), [(0, 8), (8, 4), (16, 24), (40, 1), (48, 8)]);
        assert_eq!(places(BIG), [(0, 20000), (20000, 8)]);
        assert_eq!(places(&[]), []);
    }

    #[test]
    fn damaged_attributes_are_refused() {
        for info in [&SMALL[..3], &SMALL[..9], &SMALL[..22], &BIG[..16], &[4, PARAM, 4, 0, 0, 0, 0, 0]] {
            assert!(params(info, "k").is_err(), "{info:x?}");
        }
    }

    #[test]
    fn variables_without_contents_are_counted() {
        let sized = |variables: &[(&str, u8)]| variable_bytes(&build::cubin_with(&[], variables, 80));
        assert_eq!(sized(&[]), Ok(0), "shared memory does not count");
        assert_eq!(sized(&[("a", 0), ("b", 0), ("c", 0)]), Ok(3 * build::VARIABLE_BYTES));
        assert_eq!(variable_bytes(b"no image"), Err(CubinError::Kind));
        let mut cut = build::cubin_with(&[], &[("a", 0)], 80);
        cut.truncate(cut.len() - SECTION);
        assert_eq!(variable_bytes(&cut), Err(CubinError::Short));
    }

    #[test]
    fn architectures_are_told_apart() {
        let elf = build::cubin(&[], 90);
        assert_eq!(arch(&elf), Ok(90));
        let mut old = elf;
        old[8] = 7;
        old[48..52].copy_from_slice(&0x0056_0556_u32.to_le_bytes());
        assert_eq!(arch(&old), Ok(0x56));
        old[18] = 62;
        assert_eq!(arch(&old), Err(CubinError::Kind));
        assert!(
            runs_on(80, Specific::No, 86) && !runs_on(86, Specific::No, 80) && !runs_on(80, Specific::No, 90)
        );
        assert!(runs_on(90, Specific::Architecture, 90) && !runs_on(100, Specific::Architecture, 103));
        assert!(runs_on(100, Specific::Family, 103) && !runs_on(100, Specific::Family, 120));
    }

    fn kernel() -> impl Strategy<Value = build::Kernel> {
        let params = prop::collection::vec((0_u32..9, 1_u32..200), 0..12).prop_map(|list| {
            let mut offset = 0;
            list.into_iter()
                .map(|(gap, size)| {
                    let param = Param { offset: offset + gap, size };
                    offset += gap + size;
                    param
                })
                .collect()
        });
        ("[a-zA-Z_][a-zA-Z0-9_]{0,20}", params, any::<bool>())
    }

    proptest! {
        #[test]
        fn kernels_are_found(kernels in prop::collection::vec(kernel(), 0..6), sm in 50_u8..122) {
            let elf = build::cubin(&kernels, sm);
            prop_assert_eq!(length(&elf), Ok(Length::Known(elf.len())));
            prop_assert_eq!(arch(&elf), Ok(u32::from(sm)));
            let found = super::kernels(&elf).unwrap();
            prop_assert_eq!(found.len(), kernels.len());
            for ((name, layout), expected) in found.iter().zip(&kernels) {
                prop_assert_eq!(name, &expected.0);
                let first = kernels.iter().find(|kernel| kernel.0 == expected.0).unwrap();
                prop_assert_eq!(&layout.params, &first.1);
            }
        }

        #[test]
        fn damage_never_panics(kernels in prop::collection::vec(kernel(), 0..4), places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), cut: prop::sample::Index) {
            let mut elf = build::cubin(&kernels, 80);
            for (place, value) in places {
                let place = place.index(elf.len());
                elf[place] = value;
            }
            elf.truncate(cut.index(elf.len() + 1));
            let _ = super::kernels(&elf);
            let _ = length(&elf);
            let _ = arch(&elf);
        }

        #[test]
        fn any_attributes_are_read_without_a_panic(info in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = params(&info, "k");
        }
    }

    /// Checks the values with which ptxas 12.9 marks variables: 0 for a global one, 4 for a managed one, 0x10
    /// for a kernel.
    #[test]
    fn managed_variables_are_found() {
        let of = |variables: &[(&str, u8)]| managed(&build::cubin_with(&[], variables, 80));
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("plain", 0), ("odd", 0x10)]), Ok(None));
        assert_eq!(of(&[("plain", 0), ("counter", 4)]), Ok(Some("counter".to_owned())));
        assert_eq!(managed(b"no cubin"), Err(CubinError::Kind));
    }
}
