//! Every kernel of a real libggml-cuda.so, for the architectures that the soft device can report.

#![forbid(unsafe_code)]

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use vgpu_ptx::analysis::{self, Assume};
use vgpu_ptx::{BYTES_MOST, Effort, Interrupt, Module, PtxError, STEPS_MOST};

use crate::support::{self, Image};

/// What was seen of an architecture.
#[derive(Default)]
struct Seen {
    kernels: usize,
    modules: usize,
    refused: Vec<String>,
    /// Steps and bytes of the kernels that took most.
    most: (u64, u64),
    spellings: BTreeSet<String>,
}

/// Parses all kernels of an architecture, on all processors.
fn parse_all(images: &[Image], version: (u32, u32)) -> Seen {
    let seen = Mutex::new(Seen::default());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let text = image.text();
                    let spellings = spellings(&text);
                    let module = Module::parse(text).expect("a module");
                    assert_eq!((module.version(), module.target()), (version, image.sm));
                    let results: Vec<Result<(u64, u64), PtxError>> =
                        module.kernel_names().map(|name| one(&module, name)).collect();
                    let mut seen = seen.lock().expect("no thread panicked");
                    seen.modules += 1;
                    for (steps, bytes) in results.iter().flatten() {
                        seen.most = (seen.most.0.max(*steps), seen.most.1.max(*bytes));
                    }
                    seen.kernels += results.iter().filter(|result| result.is_ok()).count();
                    seen.refused
                        .extend(results.into_iter().filter_map(Result::err).map(|error| error.to_string()));
                    seen.spellings.extend(spellings);
                }
            });
        }
    });
    seen.into_inner().expect("no thread panicked")
}

/// The steps that it takes, and the bytes, as far as the front end goes.
fn one(module: &Module, name: &str) -> Result<(u64, u64), PtxError> {
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

/// The instructions that a text spells, found without the parser: the first word of each statement.
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
            if word.first().is_some_and(u8::is_ascii_lowercase)
                && INSTRUCTIONS
                    .iter()
                    .any(|name| word.split(|&byte| byte == b'.').next() == Some(name.as_bytes()))
                && seen.insert(word)
            {
                found.insert(String::from_utf8_lossy(word).into_owned());
            }
        }
    }
    found
}

/// What statements of these libraries start with, besides labels and operands of calls.
const INSTRUCTIONS: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "and",
    "atom",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bra",
    "brev",
    "call",
    "clz",
    "cos",
    "cvt",
    "cvta",
    "div",
    "dp4a",
    "ex2",
    "exit",
    "fma",
    "ld",
    "lg2",
    "mad",
    "max",
    "membar",
    "min",
    "mma",
    "mov",
    "mul",
    "nanosleep",
    "neg",
    "not",
    "or",
    "popc",
    "prmt",
    "rcp",
    "red",
    "rem",
    "ret",
    "rsqrt",
    "selp",
    "setp",
    "shfl",
    "shl",
    "shr",
    "sin",
    "sqrt",
    "st",
    "sub",
    "trap",
    "vote",
    "xor",
];

fn images(artifact: &str, sm: u32) -> Vec<Image> {
    let mut images = support::images(artifact);
    images.retain(|image| image.sm == sm);
    images
}

/// Every kernel of an architecture, in a library that has so many.
fn every(artifact: &str, version: (u32, u32), sm: u32, kernels: usize) -> Seen {
    let seen = parse_all(&images(artifact, sm), version);
    println!(
        "sm_{sm}: {} kernels of {} modules, {} spellings",
        seen.kernels,
        seen.modules,
        seen.spellings.len()
    );
    println!("the largest kernel took {} steps and {} bytes", seen.most.0, seen.most.1);
    // The limits that stop hostile kernels are far above what real kernels need; lowering takes more than
    // twice what is counted here.
    assert!(seen.most.0 * 8 < STEPS_MOST && seen.most.1 * 4 < BYTES_MOST, "{:?}", seen.most);
    assert_eq!(seen.refused, [""; 0]);
    assert_eq!((seen.modules, seen.kernels), (143, kernels));
    seen
}

fn check(sm: u32, spellings: &str) {
    let seen = every("ggml-cuda12", (8, 4), sm, 6741);
    let expected: BTreeSet<String> = spellings.split_whitespace().map(str::to_owned).collect();
    assert_eq!(seen.spellings, expected, "the list beside this test is what the library spells");
}

#[test]
fn every_kernel_of_sm_61() {
    check(61, include_str!("spellings/sm_61.txt"));
}

#[test]
fn every_kernel_of_sm_70() {
    check(70, include_str!("spellings/sm_70.txt"));
}

#[test]
fn every_kernel_of_newer_architectures() {
    for sm in [75, 80] {
        every("ggml-cuda12", (8, 4), sm, 6741);
    }
}

#[test]
fn every_kernel_of_cuda_13() {
    for sm in [75, 80, 90] {
        every("ggml-cuda13", (9, 1), sm, 6731);
    }
}
