//! Test that parses every kernel of the stock libggml-cuda.so, for the architectures that the soft device can
//! report.

#![forbid(unsafe_code)]

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use goblin::elf::{Elf, SectionHeader};
use vgpu_image::fatbin::{self, Entry, Kind};
use vgpu_ptx::analysis::{self, Assume};
use vgpu_ptx::{BYTES_MOST, Effort, Interrupt, Module, PtxError, STEPS_MOST};

/// Result of parsing all kernels for one architecture.
#[derive(Default)]
struct Summary {
    kernels: usize,
    modules: usize,
    refused: Vec<String>,
    /// Largest number of steps and of bytes that one kernel took.
    most: (u64, u64),
    spellings: BTreeSet<String>,
}

/// Parses all kernels of an architecture, on all processors.
fn parse_all(images: &[Entry<'_>], version: (u32, u32)) -> Summary {
    let summary = Mutex::new(Summary::default());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let text = image.unpack().expect("an image");
                    let spellings = spellings(&text);
                    let module = Module::parse(text).expect("a module");
                    assert_eq!((module.version(), module.target()), (version, image.sm));
                    let results: Vec<Result<(u64, u64), PtxError>> =
                        module.kernel_names().map(|name| prepare(&module, name)).collect();
                    let mut summary = summary.lock().expect("no thread panicked");
                    summary.modules += 1;
                    for (steps, bytes) in results.iter().flatten() {
                        summary.most = (summary.most.0.max(*steps), summary.most.1.max(*bytes));
                    }
                    summary.kernels += results.iter().filter(|result| result.is_ok()).count();
                    summary
                        .refused
                        .extend(results.into_iter().filter_map(Result::err).map(|error| error.to_string()));
                    summary.spellings.extend(spellings);
                }
            });
        }
    });
    summary.into_inner().expect("no thread panicked")
}

/// Parses and analyses a kernel. Returns the steps and bytes that the front end spent on it.
fn prepare(module: &Module, name: &str) -> Result<(u64, u64), PtxError> {
    let effort = Effort::of_kernel(Interrupt::default());
    let kernel = module.kernel_within(name, &effort)?;
    // Every index is in range: engines rely on it.
    let blocks = kernel.blocks.len() as u32;
    let mut next = 0;
    for block in &kernel.blocks {
        assert_eq!(block.code.start, next, "blocks lie one after the other");
        next = block.code.end;
        let targets = match block.end {
            vgpu_ptx::ir::Terminator::Goto(to) => vec![to],
            vgpu_ptx::ir::Terminator::Branch { then, otherwise, .. } => vec![then, otherwise],
            _ => Vec::new(),
        };
        assert!(targets.iter().all(|to| to.0 < blocks));
    }
    assert_eq!(next as usize, kernel.code.len());
    for inst in &kernel.code {
        let count = kernel.registers.len() as u32;
        analysis::reads(&inst.op, &mut |reg| assert!(reg.0 < count));
        analysis::writes(&inst.op, &mut |reg| assert!(reg.0 < count));
    }
    let analysis =
        analysis::analyse(&kernel, Assume { tid_yz_uniform: true }, &effort).expect("little effort");
    let slots = analysis::slots(&kernel, &analysis);
    assert!(slots.of.iter().zip(&slots.groups).all(|(&slot, group)| slot < slots.counts[group.index()]));
    for reg in analysis.blend.iter() {
        assert!(!analysis.uniform.contains(reg));
    }
    Ok(effort.so_far())
}

/// Returns the instructions that a text contains, found without the parser: the first word of each statement.
fn spellings(text: &[u8]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut seen: HashSet<&[u8]> = HashSet::new();
    for line in text.split(|&byte| byte == b'\n') {
        let end = line.windows(2).position(|pair| pair == b"//").unwrap_or(line.len());
        for statement in line[..end].split(|&byte| matches!(byte, b';' | b'{' | b'}')) {
            let statement = statement.trim_ascii();
            // `@%p1 bra $L`, `@!p add.u32 a, b, c`
            let statement = match statement.strip_prefix(b"@") {
                Some(rest) => rest
                    .iter()
                    .position(|&byte| byte == b' ')
                    .map_or(rest, |space| rest[space..].trim_ascii()),
                None => statement,
            };
            let length = statement
                .iter()
                .position(|&byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':')))
                .unwrap_or(statement.len());
            let word = &statement[..length];
            if word.first().is_some_and(u8::is_ascii_lowercase) && seen.insert(word) {
                found.insert(String::from_utf8_lossy(word).into_owned());
            }
        }
    }
    found
}

/// Returns the packed PTX images for one architecture in the fat binaries of a library.
fn images(library: &[u8], sm: u32) -> Vec<Entry<'_>> {
    let elf = Elf::parse(library).expect("an ELF file");
    let section = elf
        .section_headers
        .iter()
        .find(|header| elf.shdr_strtab.get_at(header.sh_name) == Some(".nv_fatbin"))
        .and_then(SectionHeader::file_range)
        .expect("a section of fat binaries");
    let mut rest = &library[section];
    let mut images = Vec::new();
    while let Some(&header) = rest.first_chunk() {
        let Ok(length) = fatbin::length(header) else {
            // Containers are padded to multiples of eight bytes.
            rest = &rest[8..];
            continue;
        };
        let (container, after) = rest.split_at(length);
        images.extend(fatbin::entries(container).expect("a container"));
        rest = after;
    }
    images.retain(|image| image.kind == Kind::Ptx && image.sm == sm);
    images
}

/// Parses every kernel for one architecture in a library that is known to have this many kernels.
fn parse_library(artifact: &str, version: (u32, u32), sm: u32, kernels: usize) -> Summary {
    let folder = vgpu_artifacts::fetch(artifact).expect("the artifact");
    let library = std::fs::read(folder.join("libggml-cuda.so")).expect("libggml-cuda.so");
    let summary = parse_all(&images(&library, sm), version);
    println!(
        "sm_{sm}: {} kernels of {} modules, {} spellings",
        summary.kernels,
        summary.modules,
        summary.spellings.len()
    );
    println!("the largest kernel took {} steps and {} bytes", summary.most.0, summary.most.1);
    // The limits that stop hostile kernels are far above what real kernels need; lowering takes more than
    // twice what is counted here.
    assert!(summary.most.0 * 8 < STEPS_MOST && summary.most.1 * 4 < BYTES_MOST, "{:?}", summary.most);
    assert_eq!(summary.refused, [""; 0]);
    assert_eq!((summary.modules, summary.kernels), (143, kernels));
    summary
}

/// Compares the instructions that a library spells with the list for this architecture.
fn check_spellings(sm: u32, expected: &'static str) {
    let summary = parse_library("ggml-cuda12", (8, 4), sm, 6741);
    let heads: HashSet<&str> = SPELLINGS.iter().flat_map(|list| list.lines()).filter_map(head).collect();
    let found: BTreeSet<&str> = summary
        .spellings
        .iter()
        .map(String::as_str)
        .filter(|spelling| head(spelling).is_some_and(|head| heads.contains(head)))
        .collect();
    assert_eq!(found, expected.lines().collect(), "the list beside this test is what the library spells");
}

/// Returns the name of the instruction: the part of a spelling before its first modifier.
fn head(spelling: &str) -> Option<&str> {
    spelling.split('.').next()
}

/// Lists of spellings of sm_61 and sm_70. The tests of `vgpu-simt` have a case for each entry.
const SPELLINGS: [&str; 2] = [include_str!("spellings/sm_61.txt"), include_str!("spellings/sm_70.txt")];

#[test]
fn every_kernel_of_sm_61() {
    check_spellings(61, SPELLINGS[0]);
}

#[test]
fn every_kernel_of_sm_70() {
    check_spellings(70, SPELLINGS[1]);
}

#[test]
fn every_kernel_of_newer_architectures() {
    for sm in [75, 80] {
        parse_library("ggml-cuda12", (8, 4), sm, 6741);
    }
}

#[test]
fn every_kernel_of_cuda_13() {
    for sm in [75, 80, 90] {
        parse_library("ggml-cuda13", (9, 1), sm, 6731);
    }
}
