//! Programs that must leave the same on all engines: the corpus of reduced programs, each of which has once
//! shown a difference, and a fixed number of random ones.

use std::path::Path;

use vgpu_simt::Features;
use vgpu_simt_testing::fuzz::{self, Plan, Program, WrongKind};

/// Seed of the random programs, and their number in each of two tests. Time decides nothing, so that a loaded
/// machine tests the same.
const SEED: u64 = 1;
const PROGRAMS: u64 = 350;

#[test]
fn corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut names: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(!names.is_empty(), "the corpus has programs");
    let failed: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let text = std::fs::read_to_string(name).unwrap();
            Some(format!("{}: {}", name.display(), fuzz::check(&text, fuzz::engines()).err()?))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Returns the engines that are known to agree on the random programs. The translator for AVX-512 has not been
/// tried with them yet: `vgpu-testbed fuzz-engine` compares it where the processor has it.
fn engines() -> &'static [Features] {
    let all = fuzz::engines();
    let known = all.iter().position(|engine| *engine == Features::JitAvx512).unwrap_or(all.len());
    &all[..known]
}

/// Runs every other of the random programs.
fn run(first: u64) {
    let plan = Plan { seed: SEED, first, step: 2, programs: Some(PROGRAMS), time: None, engines: engines() };
    let report = fuzz::run(&plan, &mut |report| report.failures.is_empty());
    if let Some(failure) = report.failures.first() {
        panic!("program {} of seed {SEED}: {}\n{}", failure.number, failure.message, failure.text);
    }
    // These say that the programs are what they are meant to be.
    assert_eq!(report.programs, PROGRAMS);
    assert_eq!(report.runs.last(), Some(&PROGRAMS));
    assert!(report.lengths[report.lengths.len() / 2] >= 100, "{:?}", report.lengths);
    assert!(report.faults > PROGRAMS / 25, "{}", report.faults);
    assert!(report.references > 20 * PROGRAMS, "{}", report.references);
}

#[test]
fn random_even() {
    run(0);
}

#[test]
fn random_odd() {
    run(1);
}

/// A reference that is wrong is noticed, and so is a difference in memory.
#[test]
fn a_wrong_result_fails() {
    let text = |spelling: &str| {
        format!(
            "// block=32,1,1 grid=1,1,1 dynamic=0 seed=1 own=8 out=8 trace=32\n.version 8.4\n.target sm_90\n.address_size 64\n\
             .visible .entry k(.param .u64 table, .param .u64 own, .param .u64 out, .param .u64 trace, .param .u64 sums, .param .align 16 .b8 data[64])\n\
             {{\n.reg .b32 %r<3>;\n.reg .b64 %a;\nmov.u32 %r0, %tid.x;\nld.param.u64 %a, [trace];\nmad.wide.u32 %a, %r0, 32, %a;\n\
             add.s32 %r1, %r0, 7;\nst.global.b32 [%a+8], %r0;\nst.global.b32 [%a+16], 7;\nst.global.b32 [%a+24], %r1;\n\
             // witness 0 {spelling} 2 4\nst.global.b64 [%a], 1;\nret;\n}}\n"
        )
    };
    assert_eq!(fuzz::check(&text("add.s32"), fuzz::engines()).unwrap().references, 8 * 32);
    let error = fuzz::check(&text("sub.s32"), fuzz::engines()).unwrap_err();
    assert_eq!(error.kind, WrongKind::Reference, "{error}");
    assert!(error.message.starts_with("reference: thread 0: sub.s32"), "{error}");
    // No special register tells engines apart, so the clock stands for a result that differs.
    let clock = text("add.s32").replace("add.s32 %r1, %r0, 7;", "mov.u32 %r1, %clock;");
    let error = fuzz::check(&clock.replace("// witness", "// nothing"), fuzz::engines()).unwrap_err();
    assert!(matches!(error.kind, WrongKind::Memory(_)), "{error}");
    assert!(error.message.contains("differ: trace+"), "{error}");
}

/// With one engine, nothing would be compared.
#[test]
fn there_are_engines_to_compare() {
    if std::is_x86_feature_detected!("avx2") {
        assert!(fuzz::engines().len() >= 2, "{:?}", fuzz::engines());
    }
}

#[test]
fn a_reduced_program_keeps_what_fails() {
    let fails = |program: &Program| program.text().contains("div.u64");
    let program = (0..PROGRAMS).map(|number| fuzz::draw(SEED, number)).find(fails).unwrap();
    let reduced = fuzz::reduce(&program, 3000, &fails);
    assert!(fails(&reduced), "{}", reduced.text());
    // One statement is enough, and so is one warp.
    assert!(program.body.len() > 1, "{}", program.text());
    assert_eq!((reduced.body.len(), reduced.grid), (1, [1; 3]), "{}", reduced.text());
    assert!(reduced.threads() <= 32, "{}", reduced.text());
    assert!(reduced.text().len() < program.text().len(), "{}", reduced.text());
}
