//! The suite of `vgpu-conformance`: programs whose libcuda is this project's, in front of the executor for
//! real GPUs, in front of the second device.

use std::sync::Arc;

use vgpu_conformance::{Case, Outcome, calls};
use vgpu_device::{DeviceConfig, Executor};
use vgpu_executor_cuda::{Cuda, CudaOptions};

use crate::locks;
use crate::place::{is_inner, libcuda, options, outer, test_again};
use vgpu_host_testing::bench::{Bench, address};
use vgpu_host_testing::guest::until;

/// Environment variable with the name of the case that this process runs.
const CASE: &str = "VGPU_TEST_CASE";
/// Size of the first device's memory in bytes.
const BYTES: u64 = 768 << 20;
/// Prefix of the names of the cases that may not apply, because there is only one device.
const NOT_APPLICABLE: &str = "devices::";

/// Runs the suite's cases that are `wanted` in the order of the ring, or in an order drawn from a seed.
fn conforms(name: &str, seeds: &[Option<u64>], wanted: fn(&Case) -> bool) {
    if let Ok(case) = std::env::var(CASE) {
        calls::load(libcuda()).expect("the shim");
        return (vgpu_conformance::find(&case).expect("a case").run)();
    }
    if !is_inner(name) {
        return seeds.iter().for_each(|&seed| outer(name, seed));
    }
    locks::watch();
    let cuda = Arc::new(Cuda::new(&CudaOptions { memory: Some(BYTES), ..options() }).expect("the executor"));
    let bench = Bench::with(DeviceConfig::new(address(), Arc::clone(&cuda) as Arc<dyn Executor>));
    let mut failed = Vec::new();
    for case in vgpu_conformance::all().filter(|case| wanted(case)) {
        let mut command = test_again(name);
        match vgpu_conformance::run(command.env(CASE, case.name).env("VGPU_SYSFS", bench.folder())) {
            Outcome::Passed => until("nothing is left of the case", || bench.allocated() == 0),
            Outcome::NotApplicable(why) => {
                assert!(case.name.starts_with(NOT_APPLICABLE), "{} does not apply: {why}", case.name);
            }
            Outcome::Failed(text) => failed.push(format!("{}: {text}", case.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Prefix of the names of the cases whose kernel fails. The process of the first device loses the GPU by it,
/// so each of these cases has a process of its own.
const FAILING: &str = "kernels::a_";

/// Name of a case that fills the driver's queue behind a function of the program, and then uses another
/// stream. The driver is this project's library here. It admits as much work as the library of the program
/// does, and the executor needs a few entries of the queue for itself, so that its thread would wait for that
/// stream as well.
const FILLING: &str = "callbacks::much_work_behind_a_function_is_done";

#[test]
fn in_order() {
    let wanted = |case: &Case| !case.name.starts_with(FAILING) && case.name != FILLING;
    conforms("conformance::in_order", &[None], wanted);
}

#[test]
fn a_write_to_no_memory() {
    let wanted = |case: &Case| case.name == "kernels::a_write_to_no_memory_is_an_illegal_address";
    conforms("conformance::a_write_to_no_memory", &[None], wanted);
}

#[test]
fn a_write_to_memory_of_nobody() {
    let wanted = |case: &Case| case.name == "kernels::a_write_to_memory_of_nobody_is_an_illegal_address";
    conforms("conformance::a_write_to_memory_of_nobody", &[None], wanted);
}

#[test]
fn a_write_across_words() {
    let wanted = |case: &Case| case.name == "kernels::a_write_across_words_is_a_misaligned_address";
    conforms("conformance::a_write_across_words", &[None], wanted);
}

#[test]
fn a_trap() {
    let wanted = |case: &Case| case.name == "kernels::a_trap_is_a_launch_failure";
    conforms("conformance::a_trap", &[None], wanted);
}

/// The second device carries out independent work in an order that it draws, which shows a missing
/// dependency.
#[test]
fn in_random_orders() {
    let seeds = [1, 2, 3, 4].map(Some);
    conforms("conformance::in_random_orders", &seeds, |case| case.name.starts_with("order::"));
}
