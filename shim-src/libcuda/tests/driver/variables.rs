//! Tests of module variables whose addresses lie outside of the range that the device announces, as on a GPU,
//! whose driver chooses them: they are usable like other device memory, and never lie where the program has
//! mapped something.

use std::ops::Range;

use vgpu_abi::driver::{CUmodule, CUstream};
use vgpu_device::{Addresses, DeviceConfig, GpuConfig};
use vgpu_executor_soft::Soft;
use vgpu_wire::AddressRange;

use crate::executor::soft_changed;
use crate::host::{Host, is_guest, with_device};
use vgpu_conformance::calls::*;

/// `CUDA_ERROR_MAP_FAILED`
const MAP_FAILED: Status = 205;

/// PTX of two variables, and of a kernel that adds to the number at an address what `step` holds.
const PTX: &str = ".version 6.0
.target sm_50
.address_size 64
.visible .global .align 4 .u32 step = 5;
.visible .global .align 4 .b8 table[20000];
.visible .entry add(.param .u64 at)
{
    .reg .u32 %r<3>;
    .reg .u64 %rd<3>;
    ld.param.u64 %rd1, [at];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [%rd2];
    ld.global.u32 %r2, [step];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd2], %r1;
    ret;
}
\0";

fn gpu() -> GpuConfig {
    let mut gpu = GpuConfig::new("Test GPU").unwrap();
    gpu.memory_bytes = 1 << 30;
    gpu.addresses = Addresses::chosen(14, None).unwrap();
    gpu
}

/// Returns the part of the device's addresses that is announced. What the program does not place lies
/// elsewhere.
fn announced() -> Range<u64> {
    Soft::reservable(&gpu())
}

fn device() -> DeviceConfig {
    let Range { start: base, end } = announced();
    soft_changed("0000:00:05.0", &gpu(), |facts| {
        facts.set_addresses(AddressRange { base, bytes: end - base });
    })
}

fn load() -> CUmodule {
    get!(CUmodule, cuModuleLoadData(PTX.as_ptr().cast()))
}

/// Returns the address and size of a variable, or the error.
fn variable(module: CUmodule, name: &str) -> Result<(u64, usize), Status> {
    let name = std::ffi::CString::new(name).unwrap();
    let (mut address, mut bytes) = (0, 0);
    match cu!(cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, name.as_ptr())) {
        0 => Ok((address, bytes)),
        error => Err(error),
    }
}

/// Reserves a range without access. Returns `None` if something is mapped there.
fn reserve(range: &Range<u64>) -> Option<*mut libc::c_void> {
    let at = std::ptr::without_provenance_mut(range.start as usize);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, at an address where nothing is.
    let got = unsafe { libc::mmap(at, (range.end - range.start) as usize, libc::PROT_NONE, flags, -1, 0) };
    (got != libc::MAP_FAILED).then_some(got)
}

fn release(at: *mut libc::c_void, range: &Range<u64>) {
    // SAFETY: `reserve` mapped it, and nothing uses it.
    assert_eq!(unsafe { libc::munmap(at, (range.end - range.start) as usize) }, 0);
}

/// Returns whether the program could have memory in the page of an address.
fn is_free(address: u64) -> bool {
    let page = address & !4095..(address & !4095) + 4096;
    reserve(&page).map(|at| release(at, &page)).is_some()
}

#[test]
fn are_memory_until_their_module_ends() {
    with_device("variables::are_memory_until_their_module_ends", device, || {
        begin();
        assert_eq!(fails!(u64, cuMemAlloc_v2(4096)), 999, "other memory has to be where it is announced");
        let modules = [load(), load()];
        let mut places = Vec::new();
        for (index, &module) in modules.iter().enumerate() {
            let (step, bytes) = variable(module, "step").unwrap();
            assert_eq!((bytes, download(step, 4)), (4, vec![5, 0, 0, 0]));
            let (table, bytes) = variable(module, "table").unwrap();
            assert_eq!(bytes, 20000);
            assert!(!announced().contains(&step) && !announced().contains(&table));
            assert!(!is_free(step) && !is_free(table) && !is_free(table + 19999), "reserved here, too");
            assert_eq!(variable(module, "table"), Ok((table, bytes)), "asked for again");

            let data = random(20000);
            upload(table, &data);
            ok!(cuMemsetD8_v2(table + 100, 7, 50));
            let mut expected = data;
            expected[100..150].fill(7);
            assert!(download(table, 20000) == expected);
            assert_eq!(cu!(cuMemsetD8_v2(table + 19999, 7, 2)), 1, "not beyond its end");

            // A kernel that is given its address, and one variable after the other in a copy on the device.
            upload(step, &(10 + index as u32).to_le_bytes());
            let mut at = table;
            let mut params = [(&raw mut at).cast()];
            ok!(cuMemsetD8_v2(table, 0, 4));
            for _ in 0..3 {
                assert_eq!(launch(function(module, "add"), CUstream(0), &mut params), 0);
            }
            ok!(cuMemcpyDtoD_v2(table + 4, table, 4));
            assert_eq!(download(table + 4, 4), (3 * (10 + index as u32)).to_le_bytes());
            places.push((step, table));
        }
        let [first, second] = places[..] else { unreachable!() };
        assert!(first.0 != second.0 && first.1 != second.1, "{first:x?} {second:x?}");
        assert_eq!(download(first.0, 4), [10, 0, 0, 0], "each module has its own");

        ok!(cuModuleUnload(modules[0]));
        assert!(is_free(first.1 + 8192), "the program may use the addresses again");
        let mut byte = 0_u8;
        assert_ne!(cu!(cuMemcpyDtoH_v2((&raw mut byte).cast(), first.1, 1)), 0, "and they are no memory");
        assert_eq!(download(second.0, 4), [11, 0, 0, 0]);
        assert!(!is_free(second.0) && !is_free(second.1));
        ok!(cuModuleUnload(modules[1]));
        assert!(is_free(second.0) && is_free(second.1));
    });
}

#[test]
fn are_refused_where_something_of_the_program_lies() {
    const NAME: &str = "variables::are_refused_where_something_of_the_program_lies";
    if is_guest(NAME) {
        begin();
        let whole = gpu().addresses.range();
        let around = [whole.base..announced().start, announced().end..whole.end()];
        let taken: Vec<_> =
            around.iter().map(|range| (reserve(range).expect("free addresses"), range)).collect();
        let module = load();
        for _ in 0..2 {
            assert_eq!(variable(module, "table"), Err(MAP_FAILED));
        }
        for (at, range) in taken {
            release(at, range);
        }
        let (table, _) = variable(module, "table").unwrap();
        upload(table, &vec![3; 20000]);
        assert_eq!(download(table + 19990, 10), [3; 10], "it is asked for again, and nothing was lost");
        return;
    }
    let host = Host::serve(vec![device()]);
    let log = host.path().join("log");
    host.run(NAME, &[("VGPU_LOG", "warn"), ("VGPU_LOG_FILE", log.to_str().unwrap())]);
    let text = std::fs::read_to_string(&log).unwrap();
    let told = text.lines().filter(|line| {
        line.contains("a variable of 20000 bytes cannot be used") && line.contains("taken in this process by")
    });
    assert_eq!(told.count(), 2, "{text}");
}
