//! Tests of the host memory that launches take, and of the limits of printed text.

use std::fmt::Write as _;
use std::sync::atomic::AtomicUsize;

use vgpu_arena::Arena;
use vgpu_ptx::Module;

use super::*;
use crate::control::Ledger;
use crate::launch::{Output, launch_grid};
use crate::machine::Features;
use crate::pool::Pool;

const BASE: u64 = 0x7000_0000_0000;

/// Output that records the printed text and the statistics of the launch.
#[derive(Default)]
struct Printed(RefCell<String>, RefCell<Option<LaunchStats>>);

impl Output for Printed {
    fn record_stats(&self, stats: &LaunchStats) {
        *self.1.borrow_mut() = Some(*stats);
    }

    fn printf(&self, text: &str) {
        self.0.borrow_mut().push_str(text);
    }
}

/// Ledger with a limit, which counts its charges.
#[derive(Debug)]
struct Purse {
    left: AtomicU64,
    times: AtomicUsize,
}

impl Purse {
    fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes), times: AtomicUsize::new(0) })
    }

    /// Returns the number of charges and the bytes charged, given the initial limit.
    fn taken(&self, bytes: u64) -> (usize, u64) {
        (self.times.load(Ordering::Relaxed), bytes - self.left.load(Ordering::Relaxed))
    }
}

impl Ledger for Purse {
    fn charge(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        self.times.fetch_add(1, Ordering::Relaxed);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

fn program(code: &str) -> Program {
    let text = format!(
        ".version 8.4\n.target sm_70\n.address_size 64\n\
         .extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n\
         .entry k(.param .b64 text, .param .b64 number)\n{{\n{code}ret;\n}}\n"
    );
    let kernel = Module::parse(text.as_bytes()).and_then(|module| module.kernel("k")).expect("a kernel");
    Program::new(&kernel, &[]).expect("a program")
}

fn launch(blocks: u32, threads: u32, params: &[u8]) -> GridLaunch<'_> {
    GridLaunch { grid: [blocks, 1, 1], block: [threads, 1, 1], params, ..GridLaunch::default() }
}

/// Runs a launch on this thread only, so that only this thread's scratch memory is used.
fn alone(program: &Program, launch: &GridLaunch<'_>, view: &View, purse: &Arc<Purse>) -> Result<(), Fault> {
    let control = Control::with_budget(1 << 24).with_ledger(Arc::clone(purse) as Arc<dyn Ledger>);
    launch_grid(program, launch, view, &Pool::new(1), &control, &Printed::default())
}

fn arena() -> Arena {
    Arena::new(BASE, 1 << 20).expect("an arena")
}

/// A launch reports its blocks and warps, and whether it ran machine code. A program without machine code
/// passes no instruction to the interpreter.
#[test]
fn launches_are_counted() {
    let text = ".version 8.4\n.target sm_70\n.address_size 64\n.entry k()\n{\nbar.sync 0;\nret;\n}\n";
    let kernel = Module::parse(text.as_bytes()).and_then(|module| module.kernel("k")).expect("a kernel");
    for &features in Features::available() {
        let program = Program::with_features(&kernel, &[], features).expect("a program");
        let output = Printed::default();
        let done = launch_grid(
            &program,
            &launch(7, 65, &[]),
            &arena().view(),
            &Pool::new(1),
            &Control::new(),
            &output,
        );
        assert_eq!(done, Ok(()));
        let stats = output.1.take().expect("figures");
        assert_eq!((stats.blocks, stats.warps), (7, 21), "{features:?}");
        assert!(features.translates() || !stats.translated, "{features:?}");
        assert!(stats.translated || stats.handed == 0, "{features:?}: {stats:?}");
    }
}

/// Sessions that share code do not share the times of their blocks.
#[test]
fn times_of_blocks_are_each_users_own() {
    let program = program("");
    let unused = program.unused();
    assert_eq!(alone(&program, &launch(3, 32, &[0; 16]), &arena().view(), &Purse::new(u64::MAX)), Ok(()));
    let time = |program: &Program| program.profile.block_time.load(Ordering::Relaxed);
    assert!(time(&program) > 0 && time(&program.clone()) > 0);
    assert_eq!((time(&unused), time(&program.unused())), (0, 0));
}

/// PTX in which the two halves of each warp wait at different instructions.
const DIVERGENT: &str = ".reg .b32 %l;\n.reg .pred %p;\nmov.u32 %l, %laneid;\nsetp.lt.u32 %p, %l, 16;\n@%p bra LOW;\n\
    bar.warp.sync -1;\nbra JOIN;\nLOW:\nbar.warp.sync -1;\nJOIN:\n";

/// A kernel whose lanes diverge and reconverge in a loop takes no more memory with each iteration.
#[test]
fn parts_of_warps_are_used_again() {
    let program = program(
        ".reg .b32 %l, %i;\n.reg .pred %p, %q;\n\
         mov.u32 %l, %laneid;\nsetp.lt.u32 %p, %l, 16;\nmov.u32 %i, 0;\nLOOP:\n@%p bra LOW;\nbar.warp.sync -1;\nbra JOIN;\nLOW:\n\
         bar.warp.sync -1;\nJOIN:\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %q, %i, 500;\n@%q bra LOOP;\n",
    );
    let done = alone(&program, &launch(1, 64, &[0; 16]), &arena().view(), &Purse::new(u64::MAX));
    assert_eq!(done, Ok(()));
    let splits = SCRATCH.with_borrow(|scratch| scratch.blocks[0].splits());
    assert!((3..=8).contains(&splits), "{splits} splits of two warps");
}

/// The memory of warp splits is charged once for all blocks that a worker thread runs. If it were charged
/// again for each block, a large grid would reach its session's limit.
#[test]
fn parts_of_warps_are_charged_once() {
    let (program, arena, plenty) = (program(DIVERGENT), arena(), 1 << 40);
    let taken = |blocks: u32| {
        let purse = Purse::new(plenty);
        assert_eq!(alone(&program, &launch(blocks, 64, &[0; 16]), &arena.view(), &purse), Ok(()));
        purse.taken(plenty)
    };
    let (times, bytes) = taken(1);
    assert!(times >= 3, "the block, and a split more of each of two warps: {times}");
    assert_eq!(taken(1000), (times, bytes), "of a thousand blocks as of one");
    // With one byte less, the launch ends after it has begun.
    let purse = Purse::new(bytes - 1);
    let done = alone(&program, &launch(10, 64, &[0; 16]), &arena.view(), &purse);
    assert_eq!(done, Err(Fault::OutOfMemory { begun: true }));
    let purse = Purse::new(0);
    let done = alone(&program, &launch(10, 64, &[0; 16]), &arena.view(), &purse);
    assert_eq!(done, Err(Fault::OutOfMemory { begun: false }));
}

fn grid(program: &Program, blocks: u32, purse: &Arc<Purse>, caller: ThreadId) -> Grid {
    let control = Control::new().with_ledger(Arc::clone(purse) as Arc<dyn Ledger>);
    Grid { caller, ..Grid::new(program, &launch(blocks, 64, &[0; 16]), 0, &arena().view(), &control) }
}

fn another_thread() -> ThreadId {
    thread::spawn(|| thread::current().id()).join().expect("a thread's number")
}

/// A worker that returns to a long launch several times is charged once. If it were charged at each return, a
/// long launch beside others would reach its session's limit.
#[test]
fn workers_that_come_and_go_are_charged_once() {
    let plenty = 1 << 40;
    let purse = Purse::new(plenty);
    let grid = grid(&program(DIVERGENT), 100, &purse, another_thread());
    let turn = || {
        let asked = std::cell::Cell::new(0);
        grid.run_pieces(&|| asked.replace(asked.get() + 1) == 0);
    };
    turn();
    let first = purse.taken(plenty);
    assert!(first.0 >= 3, "{first:?}");
    (0..50).for_each(|_| turn());
    assert_eq!(purse.taken(plenty), first);
    assert!(grid.next.load(Ordering::Relaxed) >= 51, "each turn takes a block at least");
}

/// If the memory for another thread is refused, the caller's thread runs the whole grid, and no worker is
/// asked again.
#[test]
fn without_memory_for_workers_the_caller_works_alone() {
    let purse = Purse::new(0);
    let grid_of = |caller| grid(&program(""), 3, &purse, caller);
    let others = grid_of(another_thread());
    others.run_pieces(&|| true);
    assert!(!others.is_open() && others.has_more() && others.outcome.lock().unwrap().fault.is_none());
    let mine = grid_of(thread::current().id());
    mine.unpaid.store(true, Ordering::Relaxed);
    mine.run_pieces(&|| true);
    assert!(!mine.has_more() && mine.outcome.lock().unwrap().fault.is_none());
}

/// Maps memory for a format and zeroed arguments. Returns the parameters of a kernel that prints them.
fn printing(arena: &Arena, format: &str) -> Vec<u8> {
    arena.map(BASE, 1 << 16).expect("memory");
    let view = arena.view();
    let mut text = format.as_bytes().to_vec();
    text.push(0);
    view.writable(BASE, text.len() as u64).expect("memory").copy_from(&text);
    [BASE.to_le_bytes(), (BASE + (1 << 15)).to_le_bytes()].concat()
}

const PRINT: &str = ".reg .b64 %d<3>;\n.reg .b32 %r;\nld.param.u64 %d1, [text];\nld.param.u64 %d2, [number];\n{\n\
    .param .b64 p0;\n.param .b64 p1;\n.param .b32 q;\nst.param.b64 [p0+0], %d1;\nst.param.b64 [p1+0], %d2;\n\
    call.uni (q), vprintf, (p0, p1);\nld.param.b32 %r, [q+0];\n}\n";

/// The output of `printf` is held until its launch has completed, so it is limited to 1 MiB. Output beyond
/// that is dropped, and the launch continues.
#[test]
fn what_a_launch_prints_has_a_limit() {
    let arena = arena();
    // Each line is 512 bytes, expanded of 7.
    let params = printing(&arena, "%511d\n");
    let program = program(PRINT);
    for (lines, kept) in [(64, 64), (64 * 64, MOST_TEXT / 512)] {
        let printed = Printed::default();
        let launch = launch(lines / 32, 32, &params);
        let done = launch_grid(&program, &launch, &arena.view(), &Pool::new(2), &Control::new(), &printed);
        assert_eq!(done, Ok(()));
        let text = printed.0.borrow();
        assert_eq!((text.len(), text.lines().count()), (512 * kept, kept));
        assert!(text.lines().all(|line| line.len() == 511 && line.trim() == "0"));
    }
}

/// A call of `printf` whose text would be longer than 1 MiB takes no more than that of host memory, and its
/// text is dropped.
#[test]
fn one_call_of_printf_has_a_limit() {
    let arena = arena();
    let mut format = String::new();
    (0..1100).for_each(|_| write!(format, "%1024d").expect("a string"));
    let params = printing(&arena, &format);
    let printed = Printed::default();
    let program = program(PRINT);
    let done = launch_grid(
        &program,
        &launch(1, 32, &params),
        &arena.view(),
        &Pool::new(1),
        &Control::new(),
        &printed,
    );
    assert_eq!((done, printed.0.borrow().len()), (Ok(()), 0));
}
