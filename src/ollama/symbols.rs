//! Reads the imports and exports of a library: function names with their version nodes, from the dynamic
//! symbols alone.

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::section_header::{
    SHN_UNDEF, SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERNEED, SHT_GNU_VERSYM, SectionHeader,
};
use goblin::elf::sym::{STB_WEAK, STV_DEFAULT, STV_PROTECTED};
use goblin::elf::symver::{VerdefSection, VerneedSection, VersymSection};
use goblin::elf::{Symtab, sym};

use crate::program::elf::{self, ElfError, ReadAt};

/// Maximum size of a table in bytes. The table of libtorch_cuda has 60 MB.
const MOST: u64 = 256 << 20;
/// First number of a version node. Numbers 0 and 1 stand for local symbols and for global symbols without a
/// node.
const FIRST_NODE: u16 = 2;
/// Number of a name without a version node.
const NO_NODE: u16 = 0;

/// A symbol that another library has to provide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// Name of the symbol.
    pub name: String,
    /// Version node, and the SONAME of the library in which the linker found it.
    pub version: Option<(String, String)>,
}

/// Imports and exports of a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Names without which the loader rejects the library. Weak names are not included.
    pub imports: BTreeSet<Import>,
    exports: Exports,
}

/// Exported names of a library with their version nodes. A C++ library has thousands, of which few are asked
/// for, so that the names stay in the file's own string table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Exports {
    /// The file's string table.
    strings: Vec<u8>,
    /// The names, in the order of their hashes.
    names: Vec<Export>,
    /// Names of the version nodes by number.
    nodes: BTreeMap<u16, String>,
}

/// An exported name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Export {
    hash: u32,
    /// Offset of the name in the string table.
    at: u32,
    /// Number of the version node; [`NO_NODE`] stands for a name without one.
    node: u16,
}

impl Exports {
    /// Returns the version nodes of a name. A node of `None` stands for a name without a node.
    fn nodes(&self, name: &str) -> impl Iterator<Item = Option<&str>> {
        let (hash, name) = (hash(name.as_bytes()), name.as_bytes());
        let first = self.names.partition_point(|export| export.hash < hash);
        let same = self.names[first..].iter().take_while(move |export| export.hash == hash);
        let own = same.filter(move |export| text(&self.strings, export.at as usize) == Some(name));
        own.map(|export| self.nodes.get(&export.node).map(String::as_str))
    }
}

/// Returns the hash of a name that the dynamic loader uses too (`DT_GNU_HASH`).
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// Returns the string at an offset of a string table.
fn text(strings: &[u8], at: usize) -> Option<&[u8]> {
    let rest = strings.get(at..)?;
    Some(&rest[..memchr::memchr(0, rest)?])
}

impl Symbols {
    /// Reads the symbols of a shared object. The result is empty if the file has no dynamic symbol table.
    pub fn read(file: &impl ReadAt) -> Result<Self, ElfError> {
        let tables = elf::tables(file)?;
        let section = |kind| tables.sections.iter().find(|section| section.sh_type == kind);
        let Some(dynsym) = section(SHT_DYNSYM) else { return Ok(Self::default()) };
        let strings = tables.sections.get(dynsym.sh_link as usize).ok_or(ElfError::Damaged(WHAT))?;
        let read = |section: &SectionHeader| elf::content(file, section, MOST, WHAT);
        let (symbols, strings) = (read(dynsym)?, read(strings)?);
        let ctx = tables.ctx;
        let count = symbols.len() / sym::Sym::size(ctx.container);
        let table = Symtab::parse(&symbols, 0, count, ctx).map_err(|_| ElfError::Damaged(WHAT))?;

        // goblin reads a section where its header says it is in the bytes it is given: at their start here.
        let alone = |section: Option<&SectionHeader>| -> Result<Option<Section>, ElfError> {
            let Some(section) = section else { return Ok(None) };
            Ok(Some((read(section)?, [SectionHeader { sh_offset: 0, ..section.clone() }])))
        };
        let versym = alone(section(SHT_GNU_VERSYM))?;
        let needed = alone(section(SHT_GNU_VERNEED))?;
        let defined = alone(section(SHT_GNU_VERDEF))?;
        let versions = match &versym {
            Some((bytes, headers)) => VersymSection::parse(bytes, headers, ctx).map_err(damaged)?,
            None => None,
        };
        let nodes = nodes(needed.as_ref(), defined.as_ref(), &strings, ctx)?;

        let (mut imports, mut names) = (BTreeSet::new(), Vec::with_capacity(count));
        for (index, symbol) in table.iter().enumerate() {
            let name = text(&strings, symbol.st_name).ok_or(ElfError::Damaged(WHAT))?;
            if name.is_empty() {
                continue;
            }
            let version =
                versions.as_ref().and_then(|table| table.get_at(index)).map(|version| version.version());
            let node = version.filter(|version| *version >= FIRST_NODE);
            if symbol.st_shndx == SHN_UNDEF as usize {
                if symbol.st_bind() != STB_WEAK {
                    let version = node.and_then(|version| nodes.get(&version)).cloned();
                    let name = str::from_utf8(name).map_err(|_| ElfError::Damaged(WHAT))?;
                    imports.insert(Import { name: name.to_owned(), version });
                }
            } else if matches!(symbol.st_visibility(), STV_DEFAULT | STV_PROTECTED) {
                let at = u32::try_from(symbol.st_name).map_err(|_| ElfError::Damaged(WHAT))?;
                names.push(Export { hash: hash(name), at, node: node.unwrap_or(NO_NODE) });
            }
        }
        names.sort_unstable();
        let nodes = nodes.into_iter().map(|(number, (node, _))| (number, node)).collect();
        Ok(Self { imports, exports: Exports { strings, names, nodes } })
    }

    /// Returns whether the library exports a name.
    pub fn has(&self, name: &str) -> bool {
        self.exports.nodes(name).next().is_some()
    }

    /// Returns how this library satisfies an import. The loader accepts any definition for an import without
    /// a node, and a definition without a node for any import.
    pub fn meets(&self, import: &Import) -> Meeting {
        let mut meeting = Meeting::Absent;
        for node in self.exports.nodes(&import.name) {
            let met = match (&import.version, node) {
                (Some((wanted, _)), Some(node)) => node == wanted,
                (None, _) | (_, None) => true,
            };
            if met {
                return Meeting::Met;
            }
            meeting = Meeting::OtherNode;
        }
        meeting
    }
}

/// Result of looking up an import in a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The library provides the name.
    Met,
    /// The library provides the name under other version nodes only.
    OtherNode,
    /// The library does not provide the name.
    Absent,
}

const WHAT: &str = "dynamic symbols";

fn damaged(_: goblin::error::Error) -> ElfError {
    ElfError::Damaged(WHAT)
}

type Section = (Vec<u8>, [SectionHeader; 1]);

/// Returns the version nodes by number, each with the SONAME of the library that must provide it. The SONAME
/// of a node that the library itself defines is empty.
fn nodes(
    needed: Option<&Section>,
    defined: Option<&Section>,
    strings: &[u8],
    ctx: goblin::container::Ctx,
) -> Result<BTreeMap<u16, (String, String)>, ElfError> {
    let text = |at: usize| String::from_utf8_lossy(text(strings, at).unwrap_or_default()).into_owned();
    let mut nodes = BTreeMap::new();
    if let Some((bytes, headers)) = needed
        && let Some(section) = VerneedSection::parse(bytes, headers, ctx).map_err(damaged)?
    {
        for file in &section {
            for version in &file {
                nodes.insert(version.vna_other & 0x7fff, (text(version.vna_name), text(file.vn_file)));
            }
        }
    }
    if let Some((bytes, headers)) = defined
        && let Some(section) = VerdefSection::parse(bytes, headers, ctx).map_err(damaged)?
    {
        for definition in &section {
            if let Some(name) = definition.iter().next() {
                nodes.insert(definition.vd_ndx, (text(name.vda_name), String::new()));
            }
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::embedded::OBJECTS;

    fn shim(soname: &str) -> &'static [u8] {
        OBJECTS.iter().find(|object| object.soname == soname).unwrap().bytes
    }

    #[test]
    fn a_shim_gives_its_names_under_its_node() {
        let runtime = Symbols::read(&shim("libcudart.so.12")).unwrap();
        let import = |name: &str, node: &str| Import {
            name: name.into(),
            version: Some((node.into(), "libcudart.so.12".into())),
        };
        assert_eq!(runtime.meets(&import("cudaMalloc", "libcudart.so.12")), Meeting::Met);
        assert_eq!(runtime.meets(&import("cudaMalloc", "libcudart.so.13")), Meeting::OtherNode);
        assert_eq!(runtime.meets(&import("cudaNoSuch", "libcudart.so.12")), Meeting::Absent);
        assert_eq!(runtime.meets(&Import { name: "cudaMalloc".into(), version: None }), Meeting::Met);
        assert!(runtime.has("cudaMalloc") && !runtime.has("cudaNoSuch") && !runtime.has(""));
    }

    #[test]
    fn names_of_one_hash_are_told_apart() {
        // 33 * 'a' + 'b' is 33 * 'b' + 'A'.
        assert_eq!(hash(b"ab"), hash(b"bA"));
        let export = |at: u32, node: u16| Export { hash: hash(b"ab"), at, node };
        let exports = Exports {
            strings: b"\0ab\0bA\0".to_vec(),
            names: vec![export(1, 2), export(1, 3), export(4, NO_NODE)],
            nodes: BTreeMap::from([(2, "V1".to_owned()), (3, "V2".to_owned())]),
        };
        let nodes = |name: &str| exports.nodes(name).collect::<Vec<_>>();
        assert_eq!(nodes("ab"), [Some("V1"), Some("V2")]);
        assert_eq!(nodes("bA"), [None]);
        assert_eq!(nodes("b"), []);
    }

    #[test]
    fn libcuda_asks_libc_alone_and_the_others_must_be_given_nothing() {
        let driver = Symbols::read(&shim("libcuda.so.1")).unwrap();
        assert_eq!(driver.meets(&Import { name: "cuInit".into(), version: None }), Meeting::Met);
        let nodes = driver.imports.iter().filter_map(|import| import.version.as_ref());
        let nodes: BTreeSet<&str> = nodes.map(|(node, _)| node.as_str()).collect();
        assert!(!nodes.is_empty() && nodes.iter().all(|node| node.starts_with("GLIBC_")), "{nodes:?}");
        // Their one reference, to a table of libcuda's, is weak.
        let runtime = Symbols::read(&shim("libcudart.so.13")).unwrap();
        assert_eq!(runtime.imports, BTreeSet::new());
    }

    #[test]
    fn a_damaged_string_table_is_told() {
        let bytes = shim("libcuda.so.1");
        let tables = elf::tables(&bytes).unwrap();
        let dynsym = tables.sections.iter().find(|section| section.sh_type == SHT_DYNSYM).unwrap();
        let strings = &tables.sections[dynsym.sh_link as usize];
        let (start, length) = (strings.sh_offset as usize, strings.sh_size as usize);
        let mut damaged = bytes.to_vec();
        damaged[start..start + length].fill(0xff);
        assert!(matches!(Symbols::read(&damaged.as_slice()), Err(ElfError::Damaged(_))), "no name ends");
        let name = memchr::memmem::find(&bytes[start..], b"\0malloc\0").unwrap();
        let mut damaged = bytes.to_vec();
        damaged[start + name + 1] = 0xff;
        assert!(matches!(Symbols::read(&damaged.as_slice()), Err(ElfError::Damaged(_))), "no name is so");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damage_is_an_error_and_no_panic(at: usize, byte: u8, cut: usize) {
            let mut bytes = shim("libcublasLt.so.12").to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Symbols::read(&bytes.as_slice());
            bytes.truncate(cut % bytes.len());
            let _ = Symbols::read(&bytes.as_slice());
        }

        #[test]
        fn damaged_headers_too(at in 0_usize..64, byte: u8, section: usize, field: u64) {
            let mut bytes = shim("libcublasLt.so.12").to_vec();
            let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
            let place = table + section % (bytes.len() - table - 8);
            bytes[place..place + 8].copy_from_slice(&field.to_le_bytes());
            let _ = Symbols::read(&bytes.as_slice());
            bytes[at] = byte;
            let _ = Symbols::read(&bytes.as_slice());
        }
    }
}
