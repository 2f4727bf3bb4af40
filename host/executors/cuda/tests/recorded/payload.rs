//! The executor reads no byte of what a guest copies. Copies reach the GPU even if the pages of the data are
//! not accessible in the device's mapping.

use std::ffi::c_void;
use std::fs;

use rustix::mm::{MprotectFlags, mprotect};
use serde_json::json;
use vgpu_host_testing::bench::address;
use vgpu_host_testing::commands::{allocate, window};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::{Mark, Span};
use vm_memory::VolatileMemory;

use crate::gpu::RecordedGpu;

const WORD: u32 = 901;
const BYTES: u64 = 64 << 10;

/// Returns the addresses at which the device maps the window in this process, without those of the guest.
fn device_mappings(gpu: &RecordedGpu, guest: &Guest) -> Vec<usize> {
    let window = gpu.bench.folder().join("bus/pci/devices").join(address().to_string()).join("resource2");
    let window = window.to_str().expect("a path that is text");
    let own = guest.function.window.get_slice(0, 1).expect("the window").ptr_guard().as_ptr().addr();
    let maps = fs::read_to_string("/proc/self/maps").expect("the process's mappings");
    let starts = maps.lines().filter(|line| line.ends_with(window)).filter_map(|line| line.split('-').next());
    starts.filter_map(|text| usize::from_str_radix(text, 16).ok()).filter(|&start| start != own).collect()
}

fn protect(start: usize, flags: MprotectFlags) {
    let start: *mut c_void = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the pages belong to the window, which the device of this process maps. An access while they are
    // inaccessible ends the test, as intended.
    unsafe { mprotect(start, BYTES as usize, flags) }.expect("pages of a mapping");
}

#[test]
fn no_byte_of_a_copy_is_looked_at() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let (memory, place) = (allocate(&mut guest, 1 << 20), window(&mut guest, BYTES));
    let mappings = device_mappings(&gpu, &guest);
    assert_eq!(mappings.len(), 1, "the device maps its window once");
    let pages = mappings[0] + place as usize;
    protect(pages, MprotectFlags::empty());
    let (span, read) = (Span::bar(place, BYTES), Mark::new(WORD, 1));
    guest.send(&CopyIn { stream: 0, reserved: 0, destination: memory, source: span, read }, &[]);
    let written = Mark::new(WORD, 2);
    guest.send(&CopyOut { stream: 0, reserved: 0, source: memory, destination: span, written }, &[]);
    guest.wait_word(WORD, 2);
    protect(pages, MprotectFlags::READ | MprotectFlags::WRITE);
    gpu.check();
}
