//! Tests of the PTX ISA, with at least one for each spelling of an instruction that GGML's kernels for sm_61
//! and sm_70 contain.
//!
//! Expected values come from references that are written from the ISA's text rather than from the engine.
//! Each case is a separate test, and runs on each engine that this CPU supports.

#![allow(clippy::cast_precision_loss, reason = "whole numbers here are small, or meant to be rounded")]
#![allow(clippy::format_push_string, clippy::format_collect, reason = "kernels are put together from pieces")]

mod access;
mod address;
mod approximate;
mod atomics;
mod barrier;
mod bits;
mod calls;
mod carry;
mod case;
mod compare;
mod control;
mod convert;
mod differential;
mod edges;
mod emitter;
mod engines;
mod faults;
mod floating;
mod fp8;
mod functions;
mod half;
mod heap;
mod integers;
mod lanes;
mod lowest;
mod matrix;
mod mbarrier;
mod memory;
mod moves;
mod pressure;
mod products;
mod programs;
mod references;
mod refusals;
mod rounds;
mod special;
mod spin;
mod splits;
mod stops;
mod tiled;
mod tiles;
mod together;
mod turns;
mod warp;
mod wmma;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use vgpu_simt::Features;
use vgpu_simt_testing::{device, expect, floats, values};

use case::Case;
use device::Device;

/// Instruction spellings in the PTX images of a GGML CUDA library, by target. Tests of `vgpu-ptx` check that
/// the lists are complete.
const SPELLINGS: [(&str, &str); 2] = [
    ("sm_61", include_str!("../../../ptx/tests/spellings/sm_61.txt")),
    ("sm_70", include_str!("../../../ptx/tests/spellings/sm_70.txt")),
];

/// Returns the seeds of random programs: `count` seeds, or the range in the variable `VGPU_ISA_SEEDS`
/// (`FIRST..END`), for longer manual runs.
fn seeds(count: u64) -> Range<u64> {
    let Ok(text) = std::env::var("VGPU_ISA_SEEDS") else { return 0..count };
    let range = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    range.expect("VGPU_ISA_SEEDS is FIRST..END")
}

/// Name of a chapter of the tests, and the function that adds its cases.
type Chapter = (&'static str, fn(&mut Vec<Case>));

const CHAPTERS: [Chapter; 34] = [
    ("address", address::cases),
    ("approximate", approximate::cases),
    ("atomics", atomics::cases),
    ("barrier", barrier::cases),
    ("bits", bits::cases),
    ("calls", calls::cases),
    ("carry", carry::cases),
    ("compare", compare::cases),
    ("control", control::cases),
    ("convert", convert::cases),
    ("faults", faults::cases),
    ("floating", floating::cases),
    ("fp8", fp8::cases),
    ("functions", functions::cases),
    ("half", half::cases),
    ("heap", heap::cases),
    ("integers", integers::cases),
    ("matrix", matrix::cases),
    ("mbarrier", mbarrier::cases),
    ("memory", memory::cases),
    ("moves", moves::cases),
    ("pressure", pressure::cases),
    ("products", products::cases),
    ("refusals", refusals::cases),
    ("rounds", rounds::cases),
    ("special", special::cases),
    ("spin", spin::cases),
    ("splits", splits::cases),
    ("stops", stops::cases),
    ("tiles", tiles::cases),
    ("together", together::cases),
    ("turns", turns::cases),
    ("warp", warp::cases),
    ("wmma", wmma::cases),
];

/// Chapters whose results are the same in turns as short as possible. Their cases run so too.
const IN_SHORT_TURNS: [&str; 3] = ["spin", "splits", "together"];

fn check_case(case: &Case, features: Features, short: bool) -> Result<(), Failed> {
    let mut device = Device::new(&case.text, features)?;
    device.shorten_turns(short);
    let turns = if short { " in short turns" } else { "" };
    (case.check)(&mut device).map_err(|error| format!("{features:?}{turns}: {error}").into())
}

/// Checks that each listed spelling has a case.
fn complete(chapters: &[(&str, BTreeMap<String, Vec<String>>)]) -> Result<(), Failed> {
    let covered: BTreeSet<&str> =
        chapters.iter().flat_map(|(_, cases)| cases.values().flatten()).map(String::as_str).collect();
    let mut missing = Vec::new();
    for (target, list) in SPELLINGS {
        for spelling in list.lines().filter(|spelling| !covered.contains(spelling)) {
            missing.push(format!("{target}: {spelling}"));
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(format!("no test for\n{}", missing.join("\n")).into()) }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let mut covered = Vec::new();
    for (chapter, add_cases) in CHAPTERS {
        let mut names = BTreeMap::new();
        let mut cases = Vec::new();
        add_cases(&mut cases);
        for case in cases {
            // These two checks are about the tests themselves: their spellings and their names.
            for spelling in &case.covers {
                assert!(case.contains(spelling), "{chapter}::{}: its module has no {spelling}", case.name);
            }
            let twice = names.insert(case.name.clone(), case.covers.clone());
            assert!(twice.is_none(), "{chapter}::{}: two cases of this name", case.name);
            trials.push(Trial::test(format!("{chapter}::{}", case.name), move || {
                Features::available().iter().try_for_each(|&features| {
                    check_case(&case, features, false)?;
                    if IN_SHORT_TURNS.contains(&chapter) { check_case(&case, features, true) } else { Ok(()) }
                })
            }));
        }
        covered.push((chapter, names));
    }
    trials.extend(references::trials());
    trials.extend(engines::trials());
    trials.extend(edges::trials());
    trials.extend(lowest::trials());
    trials.extend(tiled::trials());
    trials.push(Trial::test("complete", move || complete(&covered)));
    libtest_mimic::run(&arguments, trials).exit_code()
}
