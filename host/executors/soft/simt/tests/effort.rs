//! Tests that the effort of preparing hostile kernels is proportional to the size of their texts. Each
//! generator is run for one size and for four times that size. Steps and bytes are counted rather than time.

use std::fmt::Write;

use vgpu_ptx::{Effort, Interrupt, Module, Spent};
use vgpu_simt::{Features, Program, ProgramError};

/// Returns a kernel with `registers` registers of 32 bits and the given code.
fn text(registers: usize, code: &str) -> String {
    format!(
        ".version 8.4\n.target sm_70\n.address_size 64\n.entry k(.param .u64 p, .param .u32 n)\n{{\n\
         .reg .b64 %a;\n.reg .b32 %n, %t, %r<{}>;\n.reg .b16 %h<{}>;\n.reg .pred %p;\n\
         ld.param.u64 %a, [p];\nld.param.u32 %n, [n];\nmov.u32 %t, %tid.x;\n{code}\nret;\n}}\n",
        registers + 1,
        2 * registers + 2
    )
}

/// Function that generates a text of a given size.
type Make = fn(usize) -> String;

/// Prepares the kernel of a text and returns the steps and bytes that it took.
fn effort(text: &str) -> (u64, u64) {
    let effort = Effort::limited(Interrupt::default(), u64::MAX, u64::MAX);
    let module = Module::parse(text.as_bytes()).expect("a module");
    let kernel = module.kernel_within("k", &effort).expect("a kernel");
    Program::within(&kernel, &[], Features::best(), &effort).expect("a program");
    effort.so_far()
}

fn each(count: usize, mut line: impl FnMut(&mut String, usize)) -> String {
    let mut code = String::new();
    for index in 0..count {
        line(&mut code, index);
    }
    code
}

/// Generates scalar values that are read after as many barriers, so that one fewer is live after each
/// barrier.
fn live_registers_and_barriers(n: usize) -> String {
    let code = each(n, |code, i| {
        let _ = writeln!(code, "add.u32 %r{i}, %n, {i};\nld.global.u32 %r{i}, [%a+{}];", 4 * i);
    });
    let used = each(n, |code, i| {
        let _ = writeln!(code, "bar.sync 0;\nst.global.u32 [%a+{}], %r{i};", 4 * i);
    });
    text(n, &format!("{code}{used}"))
}

/// Generates conversions of the halves of many words.
fn halves(n: usize) -> String {
    text(
        n,
        &each(n, |code, i| {
            let (low, high) = (2 * i, 2 * i + 1);
            let _ = writeln!(
                code,
                "ld.global.u32 %r{i}, [%a+{}];\nmov.b32 {{%h{low}, %h{high}}}, %r{i};\ncvt.f32.f16 %r{i}, %h{low};",
                4 * i
            );
        }),
    )
}

/// Generates consecutive loads of many words.
fn loads(n: usize) -> String {
    text(
        n,
        &each(n, |code, i| {
            let _ = writeln!(code, "ld.global.u32 %r{i}, [%a+{}];", 4 * (n - i));
        }),
    )
}

/// Generates moves in a loop, in the reverse order of the flow of values.
fn moves_in_reverse(n: usize) -> String {
    let moves = each(n, |code, i| {
        let _ = writeln!(code, "mov.f32 %r{}, %r{};", n - i, n - i - 1);
    });
    text(
        n,
        &format!("AGAIN:\n{moves}add.f32 %r0, %r0, %r{n};\nsetp.lt.f32 %p, %r0, 0f40000000;\n@%p bra AGAIN;"),
    )
}

/// Generates nested scopes with a register and a label each, whose names are looked up in all of them.
fn scopes(n: usize) -> String {
    let scopes = each(n, |code, i| {
        let _ =
            writeln!(code, "{{\n.reg .b32 %x;\nmov.u32 %x, {i};\nadd.u32 %t, %t, %x;\nbra HERE;\nHERE:\n}}");
    });
    text(1, &format!("{}{scopes}{}", "{\n".repeat(40), "}\n".repeat(40)))
}

#[test]
fn hostile_texts_take_effort_in_proportion() {
    let texts: [(&str, Make); 5] = [
        ("live registers and barriers", live_registers_and_barriers),
        ("halves", halves),
        ("loads", loads),
        ("moves in reverse", moves_in_reverse),
        ("scopes", scopes),
    ];
    for (name, make) in texts {
        let (once, four) = (effort(&make(500)), effort(&make(2000)));
        println!("{name}: {once:?} becomes {four:?}");
        assert!(four.0 <= 5 * once.0 && four.1 <= 6 * once.1, "{name}: {once:?} becomes {four:?}");
    }
}

#[test]
fn texts_of_a_mebibyte_are_made_ready() {
    for (name, make) in [("halves", halves as Make), ("loads", loads), ("moves", moves_in_reverse)] {
        let text = make(16_000);
        let begin = std::time::Instant::now();
        let effort = effort(&text);
        println!("{name}: {} bytes, {effort:?} in {:?}", text.len(), begin.elapsed());
    }
    let text = live_registers_and_barriers(8000);
    let begin = std::time::Instant::now();
    println!("barriers: {} bytes, {:?} in {:?}", text.len(), effort(&text), begin.elapsed());
}

#[test]
fn lowering_is_given_up_over_its_bounds_and_when_interrupted() {
    let module = Module::parse(live_registers_and_barriers(1000).as_bytes()).expect("a module");
    let kernel = module.kernel("k").expect("a kernel");
    let spent = |effort: &Effort| match Program::within(&kernel, &[], Features::best(), effort) {
        Err(ProgramError::Spent(spent)) => spent,
        other => panic!("{:?}", other.map(drop)),
    };
    let steps = Effort::limited(Interrupt::default(), 100_000, u64::MAX);
    assert_eq!(spent(&steps), Spent::Steps { most: 100_000 });
    let bytes = Effort::limited(Interrupt::default(), u64::MAX, 100_000);
    assert_eq!(spent(&bytes), Spent::Bytes { most: 100_000 });
    let stopped = Interrupt::default();
    stopped.stop();
    assert!(matches!(spent(&Effort::of_kernel(stopped.clone())), Spent::Halted(_)));
    let parsed = module.kernel_within("k", &Effort::of_kernel(stopped));
    assert!(matches!(parsed, Err(vgpu_ptx::PtxError::Spent(Spent::Halted(_)))));
}
