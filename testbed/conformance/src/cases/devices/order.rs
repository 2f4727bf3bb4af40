//! The order of copies and fills of several devices: by events, and by the legacy stream.

use rand::{Rng, RngExt};
use vgpu_abi::driver::{CUcontext, CUevent, CUstream};

use super::buffers::{
    BYTES, allocate_buffers, contexts, free_buffers, make_current, read_buffer, write_buffer,
};
use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases![
    "devices::order":
    events_order_copies_between_devices,
    the_legacy_stream_orders_copies_with_both_devices,
];

const NO_STREAM: CUstream = CUstream(0);

/// Streams are ordered by events alone; each step works on memory of any device.
fn events_order_copies_between_devices() {
    let contexts = &contexts(1);
    let mut random_number = rand::rng();
    let buffers = allocate_buffers(contexts, BYTES);
    let mut model: Vec<Vec<u8>> = buffers.iter().map(|_| random(BYTES)).collect();
    for (&buffer, data) in buffers.iter().zip(&model) {
        write_buffer(buffer, data);
    }
    let streams: Vec<(CUcontext, CUstream, CUevent)> = contexts
        .iter()
        .map(|&context| {
            make_current(context);
            (context, get!(CUstream, cuStreamCreate(1)), get!(CUevent, cuEventCreate(2)))
        })
        .collect();
    let mut before = 0;
    for _ in 0..600 {
        let next = random_number.random_range(0..streams.len());
        let (_, earlier, event) = streams[before];
        let (context, stream, _) = streams[next];
        ok!(cuEventRecord(event, earlier));
        make_current(context);
        ok!(cuStreamWaitEvent(stream, event, 0));
        if streams[next].0 != streams[before].0 {
            assert_eq!(cu!(cuEventRecord(event, stream)), 400, "an event records its own device");
        }
        before = next;
        let start = random_number.random_range(0..BYTES);
        let length = random_number.random_range(0..=(BYTES - start).min(20_000));
        let (to, from) =
            (random_number.random_range(0..buffers.len()), random_number.random_range(0..buffers.len()));
        let at = |index: usize| buffers[index].address + start as u64;
        match random_number.random_range(0..3) {
            0 => {
                let value = random_number.next_u32() as u8;
                ok!(cuMemsetD8Async(at(to), value, length, stream));
                model[to][start..start + length].fill(value);
            }
            1 if to != from => {
                ok!(cuMemcpyAsync(at(to), at(from), length, stream));
                let piece = model[from][start..start + length].to_vec();
                model[to][start..start + length].copy_from_slice(&piece);
            }
            _ => {
                let data = random(length);
                ok!(cuMemcpyHtoDAsync_v2(at(to), data.as_ptr().cast(), length, stream));
                model[to][start..start + length].copy_from_slice(&data);
            }
        }
    }
    let (_, last, _) = streams[before];
    ok!(cuStreamSynchronize(last));
    for (&buffer, expected) in buffers.iter().zip(&model) {
        assert!(read_buffer(buffer, BYTES) == *expected);
    }
    free_buffers(&buffers);
}

/// The legacy stream's copies between devices wait for the work of both devices, and their later work for
/// them.
fn the_legacy_stream_orders_copies_with_both_devices() {
    let contexts = &contexts(2);
    let mut random_number = rand::rng();
    let buffers = allocate_buffers(contexts, BYTES);
    let streams: Vec<CUstream> = contexts
        .iter()
        .map(|&context| {
            make_current(context);
            get!(CUstream, cuStreamCreate(1))
        })
        .collect();
    let mut model: Vec<Vec<u8>> = buffers.iter().map(|_| vec![0; BYTES]).collect();
    for (&buffer, data) in buffers.iter().zip(&model) {
        write_buffer(buffer, data);
    }
    for round in 0..150 {
        for (index, buffer) in buffers.iter().enumerate() {
            let value = random_number.next_u32() as u8;
            ok!(cuMemsetD8Async(buffer.address, value, BYTES, streams[index]));
            model[index].fill(value);
        }
        let to = random_number.random_range(0..buffers.len());
        let from = (to + random_number.random_range(1..buffers.len())) % buffers.len();
        make_current(contexts[random_number.random_range(0..contexts.len())]);
        let length = random_number.random_range(1..BYTES);
        let (there, here) = (buffers[to].address, buffers[from].address);
        match round % 3 {
            0 => ok!(cuMemcpyDtoD_v2(there, here, length)),
            1 => ok!(cuMemcpyPeer(there, contexts[to], here, contexts[from], length)),
            _ => ok!(cuMemcpyAsync(there, here, length, NO_STREAM)),
        }
        let piece = model[from][..length].to_vec();
        model[to][..length].copy_from_slice(&piece);
        // What comes after it, in a stream that waits for no other.
        ok!(cuMemsetD8Async(there, 0x77, 100.min(length), streams[to]));
        model[to][..100.min(length)].fill(0x77);
        let mut back = vec![0; BYTES];
        ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), there, BYTES, streams[to]));
        assert!(back == model[to], "round {round}");
    }
    free_buffers(&buffers);
}
