//! Launches: what they compute, how they fail, and the variables of their module.

use vgpu_abi::driver::{CUmodule, CUstream};

use crate::calls::*;
use crate::case::{Case, cases};
use crate::kernels::{launch_with, load_kernels, read_number, try_launch};

pub const CASES: &[Case] = cases![
    "kernels":
    kernels_compute,
    variables_are_memory_until_their_module_ends,
    a_write_to_no_memory_is_an_illegal_address,
    a_write_to_memory_of_nobody_is_an_illegal_address,
    a_write_across_words_is_a_misaligned_address,
    a_trap_is_a_launch_failure,
];

const NO_STREAM: CUstream = CUstream(0);

fn kernels_compute() {
    begin();
    let scale = function(load_kernels(), "scale");
    let address = alloc(4000);
    let numbers: Vec<u8> = (0..1000_u32).flat_map(|i| (i * 7).to_le_bytes()).collect();
    upload(address, &numbers);
    launch_with(scale, [8, 128], NO_STREAM, address, &[1000, 3]);
    launch_with(scale, [8, 128], NO_STREAM, address, &[500, 2]);
    let expected: Vec<u8> = (0..1000_u32)
        .flat_map(|i| {
            let once = i * 7 * 3 + i;
            (if i < 500 { once * 2 + i } else { once }).to_le_bytes()
        })
        .collect();
    assert!(download(address, 4000) == expected);
}

/// Returns address and size of a variable, or the error.
fn variable(module: CUmodule, name: &std::ffi::CStr) -> Result<(u64, usize), Status> {
    let (mut address, mut bytes) = (0, 0);
    match cu!(cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, name.as_ptr())) {
        0 => Ok((address, bytes)),
        error => Err(error),
    }
}

fn variables_are_memory_until_their_module_ends() {
    begin();
    let module = load_kernels();
    let globals = function(module, "globals");
    let result = alloc(4);
    // The kernel adds the third number of the table to the counter, and sets the counter to 6.
    launch_with(globals, [1, 32], NO_STREAM, result, &[]);
    assert_eq!(read_number(result), 30 + 5);
    let (counter, bytes) = variable(module, c"counter").unwrap();
    assert_eq!((bytes, read_number(counter)), (4, 6));
    let (table, bytes) = variable(module, c"table").unwrap();
    assert_eq!((bytes, read_number(table + 12)), (16, 40));
    assert_eq!(variable(module, c"nothing"), Err(500));
    upload(counter, &100_u32.to_le_bytes());
    launch_with(globals, [1, 32], NO_STREAM, result, &[]);
    assert_eq!((read_number(result), read_number(counter)), (130, 6));
    // Another module has variables of its own.
    let other = load_kernels();
    let (others, _) = variable(other, c"counter").unwrap();
    assert_eq!((others == counter, read_number(others)), (false, 5));
    ok!(cuModuleUnload(module));
    assert_eq!(cu!(cuMemcpyHtoD_v2(counter, [0_u8; 4].as_ptr().cast(), 4)), 1, "it is no memory any more");
    assert_eq!(read_number(others), 5);
}

/// Launches a kernel that fails, after which the context is lost: nothing more is carried out, and calls that
/// reach the device return the same code.
fn launch_fails(name: &str, address: u64, code: Status) {
    begin();
    let module = load_kernels();
    let (failing, digit) = (function(module, name), function(module, "digit"));
    let memory = alloc(4);
    upload(memory, &[0; 4]);
    launch_with(failing, [1, 32], NO_STREAM, address, &[]);
    // Refused if the failure is known by now, and not carried out otherwise.
    assert!([0, code].contains(&try_launch(digit, [1, 32], NO_STREAM, memory, &[1])));
    for _ in 0..2 {
        assert_eq!(cu!(cuCtxSynchronize()), code);
        assert_eq!(fails!(u64, cuMemAlloc_v2(4096)), code);
        assert_eq!(cu!(cuMemcpyDtoH_v2([0_u8; 4].as_mut_ptr().cast(), memory, 4)), code);
    }
}

fn a_write_to_no_memory_is_an_illegal_address() {
    launch_fails("poke", 0, 700);
}

fn a_write_to_memory_of_nobody_is_an_illegal_address() {
    launch_fails("poke", 0xdead_beef_0000, 700);
}

fn a_write_across_words_is_a_misaligned_address() {
    launch_fails("poke", 2, 716);
}

fn a_trap_is_a_launch_failure() {
    launch_fails("trapped", 0, 719);
}
