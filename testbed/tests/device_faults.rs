//! Faults that a program can cause on a device, through the loop: guest shim, device, cuda executor in a
//! worker process, libcuda, soft device. Each reaches the guest with the same code and stickiness as from the
//! soft executor alone, while another program continues and nothing is left behind.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;
use vgpu_serve::Facts;
use vgpu_testbed::bed::{Bed, random_facts};
use vgpu_testbed::programs;
use vgpu_testbed::state::Program;

use crate::support::launcher;

const EXECUTORS: [&str; 2] = ["soft", "cuda-loop"];
/// Options that limit kernels without an end. Other kernels end long before, however busy the machine is.
const TIMEOUT: &[&str] = &["--kernel-timeout", "15s"];

/// Path of the program, which is compiled once for all tests of this process.
static PROGRAM: LazyLock<(TempDir, std::path::PathBuf)> = LazyLock::new(|| {
    let folder = TempDir::with_prefix("vgpu-c-").expect("a directory");
    let program = programs::c_program(folder.path(), "faults.c", &[], &["libcuda.so.1"]);
    (folder, program.expect("the program compiles"))
});

/// Consequence of a fault for its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Costs {
    /// The context is lost: all later calls return the same code.
    Context,
    /// The program continues: later calls work.
    Nothing,
}

fn facts() -> [Facts; 1] {
    [random_facts(&["7.5"])]
}

/// Starts the program with a case and returns it with its output.
fn start(sysfs: &Path, case: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = launcher(sysfs)
        .arg(&PROGRAM.1)
        .arg(case)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

/// Waits for the program's successful end and returns its output: the code of the fault, and those of later
/// calls.
fn wait((mut child, mut lines): (Child, BufReader<ChildStdout>)) -> Vec<String> {
    drop(child.stdin.take());
    let mut text = String::new();
    lines.read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {text}");
    text.lines().map(str::to_owned).collect()
}

fn expected(code: u32, costs: Costs) -> Vec<String> {
    let later = if costs == Costs::Context { code } else { 0 };
    let calls = ["synchronize", "allocate", "launch", "copy"];
    std::iter::once(format!("fault {code}")).chain(calls.map(|call| format!("{call} {later}"))).collect()
}

/// Runs a program that commits a fault while another one works, and checks the codes that it receives.
fn faults(case: &str, code: u32, costs: Costs, options: &[&str]) {
    for executor in EXECUTORS {
        let told = faults_beside(executor, case, options);
        assert_eq!(told, expected(code, costs), "{executor}");
    }
}

/// Runs a program that commits a fault and returns the codes that it receives. Another program works
/// meanwhile and continues, and the next one works too.
fn faults_beside(executor: &str, case: &str, options: &[&str]) -> Vec<String> {
    let bed = Bed::start_with(executor, &facts(), options).unwrap();
    let mut other = Program::start(bed.sysfs(), "working").unwrap();
    let round = other.beyond(1).unwrap();
    let told = wait(start(bed.sysfs(), case));
    let round = other.beyond(round).unwrap();
    // A fault takes the next program's context no more than it takes this one's.
    assert_eq!(wait(start(bed.sysfs(), "no-memory")), expected(2, Costs::Nothing), "{executor}");
    other.beyond(round).unwrap();
    other.finish().unwrap();
    bed.until_nothing_is_left().unwrap();
    told
}

macro_rules! faults {
    ($( $test:ident: $case:literal, $code:literal, $costs:ident; )*) => { $(
        #[test]
        fn $test() {
            faults($case, $code, Costs::$costs, &[]);
        }
    )* };
}

faults! {
    a_write_to_nowhere: "write-nowhere", 700, Context;
    a_read_of_null: "read-null", 700, Context;
    a_misaligned_address: "misaligned", 716, Context;
    an_address_beyond_shared_memory: "beyond-shared", 700, Context;
    an_address_beyond_local_memory: "beyond-local", 700, Context;
    a_trap: "trap", 719, Context;
    a_barrier_that_there_is_not: "bad-barrier", 715, Context;
    a_barrier_that_is_never_met: "barrier-without-end", 702, Context;
    a_fault_in_a_stream: "in-a-stream", 700, Context;
    a_fault_in_a_graph: "in-a-graph", 700, Context;
    a_fill_of_nowhere: "fill-nowhere", 1, Nothing;
    a_copy_from_nowhere: "copy-nowhere", 1, Nothing;
    a_text_that_is_no_ptx: "no-ptx", 200, Nothing;
    ptx_of_a_newer_version: "newer-ptx", 222, Nothing;
    ptx_for_another_gpu: "other-gpu", 218, Nothing;
    an_elf_file_that_is_no_image: "no-image", 200, Nothing;
    an_instruction_that_nobody_knows: "unknown-instruction", 218, Nothing;
    a_kernel_that_is_not_there: "no-such-kernel", 500, Nothing;
    a_kernel_with_too_many_registers: "too-many-registers", 701, Nothing;
    more_threads_than_the_kernel_has: "too-many-threads", 701, Nothing;
    a_block_that_is_too_large: "too-large-a-block", 1, Nothing;
    more_shared_memory_than_there_is: "too-much-shared", 1, Nothing;
    no_memory: "no-memory", 2, Nothing;
}

#[test]
fn a_kernel_without_an_end() {
    faults("without-end", 702, Costs::Context, TIMEOUT);
}

/// The launch call returns the error, and other programs continue.
#[test]
fn a_cooperative_grid_that_is_too_large() {
    faults("too-large-a-grid", 720, Costs::Nothing, &[]);
}

/// The device disappears during a program: the soft one, and the one that the executor uses as its GPU. Calls
/// that need it fail with one code. If only the GPU is gone, other calls may succeed, such as a wait for
/// nothing or the use of memory that the session already has.
#[test]
fn a_lost_device() {
    for executor in EXECUTORS {
        let mut bed = Bed::start(executor, &facts()).unwrap();
        let mut program = start(bed.sysfs(), "lost");
        let mut line = String::new();
        program.1.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        if executor == "soft" {
            bed.kill().unwrap();
        } else {
            bed.kill_behind().unwrap();
        }
        let told = wait(program);
        let needs = |line: &&String| ["fault", "launch", "copy"].iter().any(|call| line.starts_with(call));
        let failed: Vec<&String> = told.iter().filter(needs).collect();
        assert_eq!(failed, ["fault 46", "launch 46", "copy 46"], "{executor}: {told:?}");
        if executor == "soft" {
            assert_eq!(told, expected(46, Costs::Context));
        }
    }
}
