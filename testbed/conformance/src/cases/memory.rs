//! Memory: what is allocated, copied and filled is there, and what cannot be is refused with CUDA's codes.

use std::ffi::c_void;
use std::ptr;

use rand::{Rng, RngExt};
use vgpu_abi::driver::{CUcontext, CUstream, Memcpy2D, Side2D};

use crate::calls::*;
use crate::case::{Case, cases};
use crate::kernels::{launch_with, load_kernels};

pub const CASES: &[Case] = cases![
    "memory":
    copies_bring_back_what_they_took,
    pinned_memory_is_copied_in_order,
    fills_fill_what_they_should,
    rows_go_both_ways,
    wrong_addresses_are_refused_here,
    memory_runs_out_and_comes_back,
    contexts_end_with_their_memory,
    allocations_are_apart_and_come_back,
    memory_is_freed_when_earlier_work_is_complete,
    pinned_memory_is_read_in_the_order_of_the_stream,
    random_programs_agree_with_a_model,
];

const NO_STREAM: CUstream = CUstream(0);

fn copies_bring_back_what_they_took() {
    begin();
    let mut random_number = rand::rng();
    for bytes in [1, 7, 4096, 4097, 16 << 10, (64 << 10) + 3, 3 << 20, 40 << 20] {
        let data = random(bytes);
        let (a, b) = (alloc(bytes), alloc(bytes));
        upload(a, &data);
        ok!(cuMemcpyDtoD_v2(b, a, bytes));
        assert!(download(b, bytes) == data, "{bytes} bytes");
        // From and to the middle.
        let start = random_number.random_range(0..bytes);
        let length = random_number.random_range(0..=bytes - start);
        assert!(download(b + start as u64, length) == data[start..start + length]);
        // By addresses alone.
        let mut back = vec![0; bytes];
        ok!(cuMemcpy(a, data.as_ptr() as u64, bytes));
        ok!(cuMemcpy(b, a, bytes));
        ok!(cuMemcpy(back.as_mut_ptr() as u64, b, bytes));
        assert!(back == data);
        let mut host = vec![0; bytes];
        ok!(cuMemcpy(host.as_mut_ptr() as u64, back.as_ptr() as u64, bytes));
        assert!(host == data);
        ok!(cuMemFree_v2(a));
        ok!(cuMemFree_v2(b));
    }
}

fn pinned_memory_is_copied_in_order() {
    begin();
    for bytes in [100, 4096, 20_000, 1 << 20, 8 << 20] {
        let data = random(bytes);
        let (host, back) = (pinned(bytes), pinned(bytes));
        let device = alloc(bytes);
        for _ in 0..20 {
            // SAFETY: pinned memory of this size, which no copy is reading: the stream was synchronised.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), host, bytes) };
            ok!(cuMemsetD8Async(device, 0, bytes, NO_STREAM));
            ok!(cuMemcpyHtoDAsync_v2(device, host.cast(), bytes, NO_STREAM));
            ok!(cuMemcpyDtoHAsync_v2(back.cast(), device, bytes, NO_STREAM));
            ok!(cuStreamSynchronize(NO_STREAM));
            // SAFETY: the copies are over.
            assert!(unsafe { std::slice::from_raw_parts(back, bytes) } == data, "{bytes} bytes");
            // SAFETY: as above.
            unsafe { host.write_bytes(0xee, bytes) };
            // SAFETY: as above.
            unsafe { back.write_bytes(0xdd, bytes) };
        }
        let kind = |address: u64, attribute| {
            let mut value = 0_u64;
            let status = cu!(cuPointerGetAttribute((&raw mut value).cast(), attribute, address));
            (status, value)
        };
        assert_eq!(kind(host as u64, 2), (0, 1), "host memory");
        assert_eq!(kind(host as u64 + 5, 11), (0, host as u64), "where it begins");
        assert_eq!(kind(device, 2), (0, 2), "device memory");
        assert_eq!(kind(data.as_ptr() as u64, 2).0, 1, "ordinary memory is not CUDA's");
        for address in [host, back] {
            ok!(cuMemFreeHost(address.cast()));
            assert_eq!(cu!(cuMemFreeHost(address.cast())), 1);
        }
        ok!(cuMemFree_v2(device));
    }
    let mut address = ptr::null_mut();
    ok!(cuMemHostAlloc(&raw mut address, 100_000, 1 | 4));
    assert_eq!(get!(u32, cuMemHostGetFlags(address)), 5);
    ok!(cuMemFreeHost(address));
    assert_eq!(fails!(u32, cuMemHostGetFlags(address)), 1);
    assert_eq!(cu!(cuMemHostAlloc(&raw mut address, 0, 0)), 1);
    assert_eq!(cu!(cuMemHostAlloc(&raw mut address, 10, 8)), 1);
}

fn fills_fill_what_they_should() {
    begin();
    let bytes = 10_000;
    let address = alloc(bytes);
    let mut expected = random(bytes);
    upload(address, &expected);
    ok!(cuMemsetD8_v2(address + 3, 0x5a, 1001));
    expected[3..1004].fill(0x5a);
    ok!(cuMemsetD32_v2(address + 2000, 0x0403_0201, 100));
    for word in expected[2000..2400].chunks_mut(4) {
        word.copy_from_slice(&[1, 2, 3, 4]);
    }
    ok!(cuMemsetD2D8_v2(address + 4000, 100, 7, 30, 5));
    for row in 0..5 {
        expected[4000 + row * 100..][..30].fill(7);
    }
    assert!(download(address, bytes) == expected);
    assert_eq!(cu!(cuMemsetD32_v2(address + 1, 0, 1)), 1, "not aligned");
    assert_eq!(cu!(cuMemsetD8_v2(address, 0, bytes + 1)), 1, "too long");
    assert_eq!(cu!(cuMemsetD8_v2(address - 1, 0, 1)), 1, "nobody's");
    assert_eq!(cu!(cuMemsetD2D8_v2(address, 10, 0, 11, 2)), 1, "rows overlap");
    ok!(cuMemsetD8_v2(address, 0, 0));
    ok!(cuMemFree_v2(address));
}

fn rows_go_both_ways() {
    begin();
    let mut random_number = rand::rng();
    let side = |kind, host: *mut u8, device: u64, pitch| Side2D {
        x: 0,
        y: 0,
        memory_type: kind,
        host: host.cast(),
        device,
        array: 0,
        pitch,
    };
    for _ in 0..60 {
        let (width, height) = (random_number.random_range(1..5000), random_number.random_range(1..40));
        let mut pitch = || width + [0, 0, 1, 64, 9000][random_number.random_range(0..5)];
        let (up, there, other, down) = (pitch(), pitch(), pitch(), pitch());
        let mut source = random(up * height);
        let (a, b) = (alloc(there * height), alloc(other * height));
        let mut target = random(down * height);
        let before = target.clone();
        let mut copy = Memcpy2D {
            src: side(1, source.as_mut_ptr(), 0, up),
            dst: side(2, ptr::null_mut(), a, there),
            width,
            height,
        };
        ok!(cuMemcpy2D_v2(&raw const copy));
        (copy.src, copy.dst) = (copy.dst, side(4, ptr::null_mut(), b, other));
        ok!(cuMemcpy2D_v2(&raw const copy));
        (copy.src, copy.dst) = (copy.dst, side(1, target.as_mut_ptr(), 0, down));
        ok!(cuMemcpy2D_v2(&raw const copy));
        for row in 0..height {
            assert!(target[row * down..][..width] == source[row * up..][..width], "row {row}");
            let end = ((row + 1) * down).min(target.len());
            assert!(target[row * down + width..end] == before[row * down + width..end], "gap {row}");
        }
        copy.dst.pitch = width - 1;
        if height > 1 {
            assert_eq!(cu!(cuMemcpy2D_v2(&raw const copy)), 1);
        }
        ok!(cuMemFree_v2(a));
        ok!(cuMemFree_v2(b));
    }
    let pitched = |width, height| {
        let (mut address, mut pitch) = (0, 0);
        ok!(cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, width, height, 4));
        assert!(pitch >= width && pitch.is_multiple_of(512));
        let (mut base, mut bytes) = (0, 0);
        ok!(cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, address + 1));
        assert_eq!((base, bytes), (address, pitch * height));
        ok!(cuMemFree_v2(address));
    };
    pitched(1, 1);
    pitched(1000, 7);
}

fn wrong_addresses_are_refused_here() {
    begin();
    let address = alloc(1000);
    let mut host = [0_u8; 2000];
    let place: *mut c_void = host.as_mut_ptr().cast();
    let sent = messages(|| {
        assert_eq!(fails!(u64, cuMemAlloc_v2(0)), 1);
        assert_eq!(cu!(cuMemAlloc_v2(ptr::null_mut(), 10)), 1);
        assert_eq!(cu!(cuMemFree_v2(address + 1)), 1, "not the start");
        assert_eq!(cu!(cuMemFree_v2(12345)), 1);
        ok!(cuMemFree_v2(0));
        assert_eq!(cu!(cuMemcpyHtoD_v2(address, place, 1001)), 1);
        assert_eq!(cu!(cuMemcpyHtoD_v2(address + 1000, place, 1)), 1);
        assert_eq!(cu!(cuMemcpyHtoD_v2(address, ptr::null(), 1)), 1);
        assert_eq!(cu!(cuMemcpyDtoH_v2(place, 0, 1)), 1);
        assert_eq!(cu!(cuMemcpyDtoH_v2(ptr::null_mut(), address, 1)), 1);
        assert_eq!(cu!(cuMemcpyDtoD_v2(address, address + 10, 100)), 1, "overlap");
        ok!(cuMemcpyDtoD_v2(address, address, 100));
        ok!(cuMemcpyHtoD_v2(address, place, 0));
        assert_eq!(fails!(u64, cuMemAllocAsync(0, NO_STREAM)), 1);
        assert_eq!(cu!(cuMemFreeAsync(address + 8, NO_STREAM)), 1);
        assert_eq!(cu!(cuMemcpyHtoDAsync_v2(address, place, 8, CUstream(0x1234_5678))), 400);
        let (mut base, mut bytes) = (0, 0);
        assert_eq!(cu!(cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, address + 1000)), 500);
    });
    assert_eq!(sent, 0);
    ok!(cuMemFree_v2(address));
    assert_eq!(cu!(cuMemFree_v2(address)), 1, "twice");
}

fn contexts_end_with_their_memory() {
    ok!(cuInit(0));
    let context = get!(CUcontext, cuCtxCreate_v3(ptr::null_mut(), 0, 0, 0));
    let address = alloc(4 << 20);
    let stream = get!(CUstream, cuStreamCreate(1));
    let with = memory_info().0;
    ok!(cuCtxDestroy(context));
    assert_eq!(cu!(cuCtxDestroy_v2(context)), 709);
    assert_eq!(fails!(i32, cuCtxGetDevice()), 201, "no context is left");
    assert_eq!(cu!(cuCtxSetCurrent(context)), 709);
    begin();
    ok!(cuCtxSynchronize());
    wait_for_free_memory(with + (4 << 20));
    assert_eq!(cu!(cuMemFree_v2(address)), 1);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 400);
}

const BYTES: usize = 200_000;

fn random_programs_agree_with_a_model() {
    begin();
    let mut random_number = rand::rng();
    let streams: Vec<CUstream> = (0..3).map(|_| get!(CUstream, cuStreamCreate(0))).collect();
    let host = pinned(BYTES);
    let mut model = vec![vec![0_u8; BYTES]; 4];
    let device: Vec<u64> = model.iter().map(|_| alloc(BYTES)).collect();
    for &address in &device {
        ok!(cuMemsetD8_v2(address, 0, BYTES));
    }
    for _ in 0..1500 {
        // Every piece of work goes to some stream and is ordered behind the one before by a synchronize
        // that need not wait.
        let stream = streams[random_number.random_range(0..3)];
        let start = random_number.random_range(0..BYTES);
        let most = 1 << random_number.random_range(1..18);
        let length = random_number.random_range(0..=(BYTES - start).min(most));
        let (a, b) = (random_number.random_range(0..4), random_number.random_range(0..4));
        let at = |i: usize| device[i] + start as u64;
        match random_number.random_range(0..6) {
            0 => {
                let value = random_number.next_u32() as u8;
                ok!(cuMemsetD8Async(at(a), value, length, stream));
                model[a][start..start + length].fill(value);
            }
            1 => {
                let data = random(length);
                ok!(cuMemcpyHtoDAsync_v2(at(a), data.as_ptr().cast(), length, stream));
                model[a][start..start + length].copy_from_slice(&data);
            }
            2 => {
                let data = random(length);
                // SAFETY: within the pinned memory.
                let from = unsafe { host.add(start) };
                // SAFETY: pinned memory that no copy uses: each was followed by a synchronize.
                unsafe { ptr::copy_nonoverlapping(data.as_ptr(), from, length) };
                ok!(cuMemcpyHtoDAsync_v2(at(a), from.cast(), length, stream));
                model[a][start..start + length].copy_from_slice(&data);
            }
            3 if a != b => {
                ok!(cuMemcpyDtoDAsync_v2(at(a), at(b), length, stream));
                let piece = model[b][start..start + length].to_vec();
                model[a][start..start + length].copy_from_slice(&piece);
            }
            4 => {
                // SAFETY: within the pinned memory.
                let to = unsafe { host.add(start) };
                ok!(cuMemcpyDtoHAsync_v2(to.cast(), at(a), length, stream));
                ok!(cuStreamSynchronize(stream));
                // SAFETY: the copy is over.
                let back = unsafe { std::slice::from_raw_parts(to, length) };
                assert!(back == &model[a][start..start + length]);
            }
            _ => {
                let mut back = vec![0; length];
                ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), at(a), length, stream));
                assert!(back == model[a][start..start + length]);
            }
        }
        ok!(cuStreamSynchronize(stream));
    }
    for (address, expected) in device.iter().zip(&model) {
        assert!(download(*address, BYTES) == *expected);
    }
}

fn memory_runs_out_and_comes_back() {
    begin();
    let (free, total) = memory_info();
    assert!(free <= total, "{free} {total}");
    // Whole pages of two mebibytes, of which two do not fit.
    let most = (free / 3 * 2) >> 21 << 21;
    let big = alloc(most);
    assert_eq!(memory_info(), (free - most, total));
    assert_eq!(fails!(u64, cuMemAlloc_v2(most)), 2);
    assert_eq!(fails!(u64, cuMemAllocAsync(most, NO_STREAM)), 2);
    assert_eq!(fails!(u64, cuMemAlloc_v2(usize::MAX / 2)), 2);
    ok!(cuMemFree_v2(big));
    let again = get!(u64, cuMemAllocAsync(most, NO_STREAM));
    ok!(cuMemFreeAsync(again, NO_STREAM));
    let third = alloc(most);
    ok!(cuMemFree_v2(third));
    ok!(cuCtxSynchronize());
    wait_for_free_memory(free);
}

/// A block that serves small allocations may stay when they are freed; nothing else may.
fn allocations_are_apart_and_come_back() {
    begin();
    ok!(cuMemFree_v2(alloc(1)));
    let (free, _) = memory_info();
    let sizes = [1, 511, 512, 4096, 100_000, 1 << 19, (1 << 19) + 1, 3 << 20, 2 << 20];
    let held: Vec<(u64, u64)> = sizes.iter().map(|&bytes| (alloc(bytes), bytes as u64)).collect();
    for (index, &(address, bytes)) in held.iter().enumerate() {
        assert_eq!(address % 256, 0);
        for &(other, length) in &held[..index] {
            assert!(address + bytes <= other || other + length <= address, "{address:#x} {other:#x}");
        }
        upload(address, &[index as u8 + 1]);
        upload(address + bytes - 1, &[index as u8 + 1]);
    }
    for (index, &(address, bytes)) in held.iter().enumerate() {
        assert_eq!(download(address, 1), [index as u8 + 1]);
        assert_eq!(download(address + bytes - 1, 1), [index as u8 + 1]);
    }
    for (address, _) in held {
        ok!(cuMemFree_v2(address));
    }
    ok!(cuCtxSynchronize());
    wait_for_free_memory(free);
}

/// Allocates three times what there is, and never waits for the work that uses what it frees.
fn memory_is_freed_when_earlier_work_is_complete() {
    begin();
    let scale = function(load_kernels(), "scale");
    let result = alloc(4);
    upload(result, &[0; 4]);
    let streams = [0; 2].map(|_| get!(CUstream, cuStreamCreate(1)));
    let bytes = memory_info().0 / 4 - (2 << 20);
    for round in 0..12_u32 {
        let stream = streams[round as usize % 2];
        let address = alloc(bytes);
        launch_with(scale, [64, 256], stream, address, &[1 << 14, 3]);
        launch_with(scale, [1, 256], streams[0], result, &[1, 1 + round % 2]);
        if round % 3 == 0 {
            ok!(cuMemFreeAsync(address, stream));
        } else {
            ok!(cuMemFree_v2(address));
        }
    }
    ok!(cuCtxSynchronize());
    ok!(cuMemFree_v2(result));
}

/// A copy reads what the copy before it in the stream wrote to pinned memory, although nobody waits between.
fn pinned_memory_is_read_in_the_order_of_the_stream() {
    begin();
    let bytes = 600_000;
    let (a, b, host) = (alloc(bytes), alloc(bytes), pinned(bytes));
    for round in 1..=3 {
        let data = random(bytes);
        upload(a, &data);
        ok!(cuMemcpyDtoHAsync_v2(host.cast(), a, bytes, NO_STREAM));
        ok!(cuMemcpyHtoDAsync_v2(b, host.cast(), bytes, NO_STREAM));
        assert!(download(b, bytes) == data, "round {round}");
    }
    ok!(cuMemFreeHost(host.cast()));
}
