//! Properties of a linked shim, read from the object itself, and their comparison with the expected ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use goblin::elf::Elf;
use goblin::elf::dynamic::{DF_TEXTREL, DT_TEXTREL};
use goblin::elf::program_header::{PF_X, PT_GNU_STACK};
use goblin::elf::section_header::{SHN_ABS, SHN_UNDEF};
use goblin::elf::sym::{STB_GLOBAL, STB_GNU_UNIQUE, STB_WEAK, STV_DEFAULT, STV_PROTECTED, Sym};

use super::gate;

/// Version of glibc; 2.17 is `Glibc(2, 17)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc(pub u32, pub u32);

impl Glibc {
    /// Parses a version such as `2.17` or `2.2.5`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|number| number.parse().ok());
        Some(Self(numbers.next()??, numbers.next()??))
    }
}

impl fmt::Display for Glibc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.0, self.1)
    }
}

/// Properties of a shared object that the checks need.
#[derive(Debug)]
pub struct Object {
    /// The object's SONAME, if it has one.
    pub soname: Option<String>,
    /// SONAMEs on which the object depends, in its order.
    pub needed: Vec<String>,
    /// Exported names, each with its version node if it has one.
    pub exports: BTreeMap<String, Option<String>>,
    /// Exported names with every version node, for names that have several.
    pub definitions: BTreeSet<(String, Option<String>)>,
    /// Names of the exported tables through which other objects reach its code.
    pub tables: BTreeSet<String>,
    /// Newest glibc version that the object requires.
    pub glibc: Option<Glibc>,
    /// Whether the loader must write to the object's code.
    pub text_relocations: bool,
    /// Whether the object requests an executable stack.
    pub executable_stack: bool,
    /// Whether the object requests an interpreter, as programs do.
    pub interpreter: bool,
}

impl Object {
    /// Reads a 64-bit ELF object.
    pub fn parse(bytes: &[u8]) -> Result<Self, goblin::error::Error> {
        let elf = Elf::parse(bytes)?;
        let dynamic = elf.dynamic.as_ref();
        let flags = dynamic.map_or(0, |dynamic| dynamic.info.flags);
        let text_relocation_tag =
            dynamic.is_some_and(|dynamic| dynamic.dyns.iter().any(|entry| entry.d_tag == DT_TEXTREL));
        let mut definitions = exports(&elf);
        let tables: Vec<_> = definitions.extract_if(.., |(name, _)| name.starts_with(gate::PREFIX)).collect();
        Ok(Self {
            soname: elf.soname.map(str::to_owned),
            needed: elf.libraries.iter().map(|&name| name.to_owned()).collect(),
            exports: definitions.iter().cloned().collect(),
            definitions,
            tables: tables.into_iter().map(|(name, _)| name).collect(),
            glibc: newest_glibc(&elf),
            text_relocations: flags & DF_TEXTREL != 0 || text_relocation_tag,
            executable_stack: elf
                .program_headers
                .iter()
                .any(|header| header.p_type == PT_GNU_STACK && header.p_flags & PF_X != 0),
            interpreter: elf.interpreter.is_some(),
        })
    }
}

impl Object {
    /// Returns whether the object defines `name` with that version node.
    pub fn has(&self, name: &str, node: &str) -> bool {
        self.definitions.contains(&(name.to_owned(), Some(node.to_owned())))
    }
}

fn is_exported(symbol: &Sym) -> bool {
    symbol.st_shndx != SHN_UNDEF as usize
        // GNU ld exports an absolute symbol for each version node; it is no name of the library.
        && symbol.st_shndx != SHN_ABS as usize
        && matches!(symbol.st_bind(), STB_GLOBAL | STB_WEAK | STB_GNU_UNIQUE)
        && matches!(symbol.st_visibility(), STV_DEFAULT | STV_PROTECTED)
}

fn exports(elf: &Elf<'_>) -> BTreeSet<(String, Option<String>)> {
    /// First index of a version node. Indices 0 and 1 stand for local and for global without a node.
    const FIRST_NODE: u16 = 2;
    let nodes: BTreeMap<u16, &str> = elf
        .verdef
        .iter()
        .flatten()
        .filter_map(|definition| {
            let name = definition.iter().next()?;
            Some((definition.vd_ndx, elf.dynstrtab.get_at(name.vda_name)?))
        })
        .collect();
    let mut exports = BTreeSet::new();
    for (index, symbol) in elf.dynsyms.iter().enumerate() {
        if !is_exported(&symbol) {
            continue;
        }
        let Some(name) = elf.dynstrtab.get_at(symbol.st_name) else { continue };
        let version = elf.versym.as_ref().and_then(|table| table.get_at(index));
        let node = version
            .map(|version| version.version())
            .filter(|version| *version >= FIRST_NODE)
            .and_then(|version| nodes.get(&version))
            .map(|&node| node.to_owned());
        exports.insert((name.to_owned(), node));
    }
    exports
}

fn newest_glibc(elf: &Elf<'_>) -> Option<Glibc> {
    elf.verneed
        .iter()
        .flatten()
        .flat_map(|file| file.iter().collect::<Vec<_>>())
        .filter_map(|version| Glibc::parse(elf.dynstrtab.get_at(version.vna_name)?.strip_prefix("GLIBC_")?))
        .max()
}

/// Properties that a linked shim must have.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Required SONAME.
    pub soname: &'a str,
    /// Required version node of every export, or `None` for exports without nodes.
    pub node: Option<&'a str>,
    /// Names that must be exported, and no others.
    pub names: &'a BTreeSet<&'a str>,
    /// Required SONAMEs of dependencies.
    pub needed: &'a [&'a str],
}

/// Compares an object with its expected properties, and returns a description of each difference.
pub fn problems(object: &Object, expected: &Expected<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    if object.soname.as_deref() != Some(expected.soname) {
        problems.push(format!("its SONAME is {:?}", object.soname));
    }
    for name in missing(object, expected.names) {
        problems.push(format!("{name} is not exported"));
    }
    for name in extra(object, expected.names) {
        problems.push(format!("{name} is exported but not listed"));
    }
    for (name, node) in &object.exports {
        if node.as_deref() != expected.node {
            problems.push(format!("{name} has the version node {node:?}, not {:?}", expected.node));
        }
    }
    for name in expected.needed {
        if !object.needed.iter().any(|needed| needed == name) {
            problems.push(format!("it does not need {name}"));
        }
    }
    if object.text_relocations {
        problems.push("its code has relocations".into());
    }
    if object.executable_stack {
        problems.push("it asks for an executable stack".into());
    }
    problems
}

/// Returns the expected names that are not exported.
pub fn missing<'a>(object: &'a Object, names: &'a BTreeSet<&'a str>) -> impl Iterator<Item = &'a str> {
    names.iter().copied().filter(|name| !object.exports.contains_key(*name))
}

/// Returns the exported names that are not expected.
pub fn extra<'a>(object: &'a Object, names: &'a BTreeSet<&'a str>) -> impl Iterator<Item = &'a str> {
    object.exports.keys().map(String::as_str).filter(|name| !names.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_everything_that_is_wrong() {
        let object = Object {
            soname: Some("libother.so".into()),
            needed: vec!["libc.so.6".into()],
            exports: [("a".to_owned(), None), ("z".to_owned(), Some("node".to_owned()))].into(),
            definitions: BTreeSet::new(),
            tables: BTreeSet::new(),
            glibc: Some(Glibc(2, 17)),
            text_relocations: false,
            executable_stack: true,
            interpreter: false,
        };
        let names = BTreeSet::from(["a", "b"]);
        let expected =
            Expected { soname: "libthis.so", node: Some("node"), names: &names, needed: &["libcuda.so.1"] };
        let problems = problems(&object, &expected);
        for part in ["SONAME", "b is not exported", "z is exported", "a has the version", "libcuda", "stack"]
        {
            assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
        }
        assert_eq!(problems.len(), 6);
    }

    #[test]
    fn versions_order_as_numbers() {
        assert!(Glibc::parse("2.2.5") < Glibc::parse("2.17"));
        assert_eq!(Glibc::parse("PRIVATE"), None);
    }
}
