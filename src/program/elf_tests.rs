//! Tests the ELF reader with real files of this machine and with randomly damaged files.

use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;

impl ReadAt for &[u8] {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(buffer, offset)? {
            got if got == buffer.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.get(offset.min(self.len() as u64) as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// Returns the test program's own file. It has constants, and is dynamic if the tests are built so.
fn own() -> &'static [u8] {
    static OWN: OnceLock<Vec<u8>> = OnceLock::new();
    OWN.get_or_init(|| std::fs::read("/proc/self/exe").unwrap())
}

/// Returns the headers and the data next to them, for tests that damage them.
fn head() -> Vec<u8> {
    own()[..0x2_0000].to_vec()
}

#[test]
fn this_test_program_is_what_the_compiler_said() {
    let elf = Elf::read(&own()).unwrap();
    assert!(elf.x86_64 && elf.wide && elf.loadable);
    assert_eq!(elf.soname, None);
    if !cfg!(target_feature = "crt-static") {
        assert!(elf.interpreter.unwrap().ends_with("/ld-linux-x86-64.so.2"));
        assert!(elf.needed.iter().any(|name| name == "libc.so.6"), "{:?}", elf.needed);
    }
}

#[test]
fn the_loader_is_a_library_with_a_name() {
    let path = Path::new("/lib64/ld-linux-x86-64.so.2");
    if path.exists() {
        let elf = Elf::read(&File::open(path).unwrap()).unwrap();
        assert_eq!(elf.soname.as_deref(), Some("ld-linux-x86-64.so.2"));
        assert_eq!(elf.interpreter, None);
    }
}

#[test]
fn constants_hold_the_string_constants() {
    let needle = b"a constant that is only in this test";
    let bytes = own();
    let (ranges, _) = constants(&bytes, ".text").unwrap();
    let held = ranges.iter().any(|range| {
        let part = &bytes[range.offset as usize..(range.offset + range.bytes) as usize];
        memchr::memmem::find(part, std::hint::black_box(needle)).is_some()
    });
    assert!(held, "{ranges:?}");
}

#[test]
fn constants_says_whether_the_section_is_there() {
    let bytes = own();
    assert!(constants(&bytes, ".text").unwrap().1);
    assert!(!constants(&bytes, ".go.buildinfo").unwrap().1);
}

#[test]
fn an_address_of_a_running_program_is_found_in_its_file() {
    /// Load address of the test's program. It has headers of 0x40 bytes and a segment whose addresses differ
    /// from its offsets.
    const BIAS: u64 = 0x5555_0000_0000;
    let segment = |p_vaddr, p_offset, p_filesz| ProgramHeader {
        p_type: PT_LOAD,
        p_vaddr,
        p_offset,
        p_filesz,
        ..ProgramHeader::default()
    };
    let segments = Segments {
        segments: vec![segment(0, 0, 0x800), segment(0x3000, 0x1000, 0x500), segment(0x5000, 0x1500, 0x10)],
        table: 0x40,
    };
    let at = |address, bytes| segments.offset(BIAS + 0x40, address, bytes);
    assert_eq!(at(BIAS + 0x3010, 0x4f0), Some(0x1010));
    assert_eq!(at(BIAS + 0x3010, 0x4f1), None, "the last byte is no part of the file");
    assert_eq!(at(BIAS + 0x34ff, 0x1b10), None, "in the file they do not lie side by side");
    assert_eq!(at(BIAS + 0x900, 1), None);
    assert_eq!(at(BIAS - 1, 1), None);
    assert_eq!(at(BIAS + 0x3000, 0), None);
    assert_eq!(at(u64::MAX, u64::MAX), None);
    assert!(Segments::read(&own()).is_ok());
    assert!(matches!(Segments::read(&b"#!".as_slice()), Err(ElfError::NotElf)));
}

#[test]
fn without_section_headers_the_readable_segments_are_searched() {
    let mut bytes = head();
    bytes[0x28..0x30].fill(0); // e_shoff
    let (ranges, _) = constants(&bytes.as_slice(), ".text").unwrap();
    assert!(!ranges.is_empty());
}

#[test]
fn what_is_no_elf_says_so() {
    assert!(matches!(Elf::read(&b"".as_slice()), Err(ElfError::NotElf)));
    assert!(matches!(Elf::read(&b"\x7fEL".as_slice()), Err(ElfError::NotElf)));
    assert!(matches!(Elf::read(&b"#!/bin/sh\n".as_slice()), Err(ElfError::NotElf)));
    assert!(matches!(Elf::read(&b"\x7fELF".as_slice()), Err(ElfError::Damaged("header"))));
}

#[test]
fn a_32_bit_file_is_told_apart() {
    let mut bytes = head();
    bytes[4] = 1; // EI_CLASS: 32
    // The headers are invalid now, but the file must not count as a 64-bit one.
    assert!(!Elf::read(&bytes.as_slice()).is_ok_and(|elf| elf.wide));
}

proptest! {
    #[test]
    fn truncated_files_never_panic(keep in 0_usize..0x20_0000) {
        let bytes = own();
        let cut = &bytes[..keep.min(bytes.len())];
        let _ = Elf::read(&cut);
        let _ = constants(&cut, ".text");
        let _ = Segments::read(&cut);
    }

    #[test]
    fn damaged_headers_never_panic(changes in prop::collection::vec((0_usize..0x400, any::<u8>()), 1..40)) {
        let mut bytes = head();
        for (at, value) in changes {
            // The magic number stays unchanged, because otherwise all cases would be the same.
            bytes[4 + at] = value;
        }
        let _ = Elf::read(&bytes.as_slice());
        let _ = constants(&bytes.as_slice(), ".text");
    }

    #[test]
    fn random_bytes_after_the_magic_never_panic(rest in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.extend(rest);
        let _ = Elf::read(&bytes.as_slice());
        let _ = constants(&bytes.as_slice(), ".text");
    }
}
