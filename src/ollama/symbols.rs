//! Reads the imports and exports of a library: function names with their version nodes, from the dynamic
//! symbols alone.

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::section_header::{
    SHN_UNDEF, SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERNEED, SHT_GNU_VERSYM, SectionHeader,
};
use goblin::elf::sym::{STB_WEAK, STV_DEFAULT, STV_PROTECTED};
use goblin::elf::symver::{VerdefSection, VerneedSection, VersymSection};
use goblin::elf::{Symtab, sym};
use goblin::strtab::Strtab;

use crate::program::elf::{self, ElfError, ReadAt};

/// Maximum size of a table in bytes. The table of libtorch_cuda has 60 MB.
const MOST: u64 = 256 << 20;
/// First number of a version node. Numbers 0 and 1 stand for local symbols and for global symbols without a
/// node.
const FIRST_NODE: u16 = 2;

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
    /// Exported names with their version nodes. A node of `None` stands for a name without a node.
    pub exports: BTreeMap<String, BTreeSet<Option<String>>>,
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
        let names = Strtab::parse(&strings, 0, strings.len(), 0).map_err(|_| ElfError::Damaged(WHAT))?;
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
        let nodes = nodes(needed.as_ref(), defined.as_ref(), &names, ctx)?;

        let mut found = Self::default();
        for (index, symbol) in table.iter().enumerate() {
            let Some(name) = names.get_at(symbol.st_name).filter(|name| !name.is_empty()) else { continue };
            let version =
                versions.as_ref().and_then(|table| table.get_at(index)).map(|version| version.version());
            let node =
                version.filter(|version| *version >= FIRST_NODE).and_then(|version| nodes.get(&version));
            if symbol.st_shndx == SHN_UNDEF as usize {
                if symbol.st_bind() != STB_WEAK {
                    found.imports.insert(Import { name: name.to_owned(), version: node.cloned() });
                }
            } else if matches!(symbol.st_visibility(), STV_DEFAULT | STV_PROTECTED) {
                let node = node.map(|(node, _)| node.clone());
                found.exports.entry(name.to_owned()).or_default().insert(node);
            }
        }
        Ok(found)
    }

    /// Returns how this library satisfies an import. The loader accepts any definition for an import without
    /// a node, and a definition without a node for any import.
    pub fn meets(&self, import: &Import) -> Meeting {
        let Some(nodes) = self.exports.get(&import.name) else { return Meeting::Absent };
        match &import.version {
            None => Meeting::Met,
            Some((wanted, _)) if nodes.iter().any(|node| node.as_ref().is_none_or(|node| node == wanted)) => {
                Meeting::Met
            }
            Some(_) => Meeting::OtherNode,
        }
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
    names: &Strtab<'_>,
    ctx: goblin::container::Ctx,
) -> Result<BTreeMap<u16, (String, String)>, ElfError> {
    let text = |at: usize| names.get_at(at).unwrap_or_default().to_owned();
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
