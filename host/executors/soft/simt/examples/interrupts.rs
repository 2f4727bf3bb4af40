//! What it costs to look whether a kernel has to end: a kernel of loops with a deadline, as a ratio of the
//! same kernel without one. Both are run by turns, and the fastest run of each counts, so that other load on
//! the machine matters little.
//!
//! ```text
//! cargo run --release -p vgpu-simt --example interrupts
//! ```

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_arena::Arena;
use vgpu_ptx::{Interrupt, Module};
use vgpu_simt::{Control, GridLaunch, Output, Pool, Program, launch_grid};

/// Runs of each kind.
const RUNS: usize = 60;
/// A deadline that does not come.
const FAR: Duration = Duration::from_hours(1);
/// Each thread goes round a short loop.
const PTX: &str = ".version 8.0\n.target sm_61\n.address_size 64\n.entry k()\n{\n.reg .b32 %r<3>;\n.reg .pred %p;\nmov.u32 %r1, %tid.x;\n\
    mov.u32 %r2, 0;\nAGAIN:\nmad.lo.u32 %r1, %r1, 3, 5;\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p, %r2, 2000;\n@%p bra AGAIN;\nret;\n}\n";

struct Silent;

impl Output for Silent {
    fn printf(&self, _: &str) {}
}

fn main() {
    let kernel = Module::parse(PTX).and_then(|module| module.kernel("k")).expect("a kernel");
    let program = Program::new(&kernel, &[]).expect("a program");
    let arena = Arena::new(0x7000_0000_0000, 1 << 20).expect("an arena");
    let launch = GridLaunch {
        grid: [64, 1, 1],
        block: [128, 1, 1],
        dynamic_shared: 0,
        stack: 0,
        heap: None,
        params: &[],
        cooperative: false,
        workspace: 0,
    };
    let pool = Pool::new(1);
    let time = |limit: Option<Duration>| {
        let control = Control::with_interrupt(Interrupt::new(Arc::default(), limit));
        let begin = Instant::now();
        launch_grid(&program, &launch, &arena.view(), &pool, &control, &Silent).expect("the kernel ends");
        begin.elapsed()
    };
    let (mut without, mut with) = (Duration::MAX, Duration::MAX);
    for _ in 0..RUNS {
        without = without.min(time(None));
        with = with.min(time(Some(FAR)));
    }
    println!(
        "without a deadline {without:?}, with one {with:?}: {:.4} times as long",
        with.as_secs_f64() / without.as_secs_f64()
    );
}
