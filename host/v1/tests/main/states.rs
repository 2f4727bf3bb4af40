//! Tests of the states of a call, seen from both ends of the device: what is sent, what is shown, and what a
//! host can do wrong.

use vgpu_device_v1::{Bar, Delivery, Pool, Priority, Properties};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers as reg;

use crate::link::{Bench, Fate, outcome};

const BAR1_STATUS: u32 = 0xff_fffc;

fn bench() -> Bench {
    Bench::new(Properties { vm_id: 0x10a, pool: Pool::B, priority: Priority::High, ..Properties::default() })
}

fn mirror(bench: &Bench) -> u32 {
    bench.guest.device.read(Bar::Bar1, BAR1_STATUS, 4) as u32
}

#[test]
fn a_call_is_busy_until_it_is_answered() {
    let mut bench = bench();
    bench.guest.submit(Op::MemGetInfo as u32, &[], 0);
    let busy =
        |bench: &Bench| (bench.guest.read(reg::STATUS), mirror(bench), bench.guest.read(reg::RESPONSE_LEN));
    assert_eq!(busy(&bench), (reg::BUSY, reg::BUSY, 0));
    bench.answer_last(0, &[5, 6 << 32], &[]);
    assert_eq!(busy(&bench), (reg::DONE, reg::DONE, 1));
    assert_eq!(bench.guest.collect().ok(), [5, 6 << 32]);
    // The next doorbell clears all of it.
    bench.guest.ring();
    assert_eq!(busy(&bench), (reg::BUSY, reg::BUSY, 0));
    assert_eq!((bench.guest.read(reg::RESULTS), bench.guest.read(reg::RESULTS + 12)), (0, 0));
    bench.answer_last(600, &[], &[]);
    assert_eq!(busy(&bench), (reg::ERROR, reg::ERROR, 1));
    assert_eq!(bench.guest.collect().failed(), 600);
    bench.guest.ring();
    assert_eq!(bench.guest.read(reg::ERROR_CODE), 0, "cleared by the doorbell");
}

#[test]
fn the_frame_holds_what_was_staged_and_no_more() {
    let mut bench = bench();
    bench.guest.stage(0x7777, &[1, 2, 3, 4, 5], 0);
    bench.guest.submit(0x7777, &[9, 8], 0);
    let sent = bench.last();
    assert_eq!((sent.header.vm_id.get(), sent.header.request_id.get()), (0x10a, 1));
    assert_eq!((sent.header.pool, sent.header.priority, sent.header.bytes.get()), (b'B', 2, 88));
    assert_eq!((sent.call.op.get(), sent.call.seq.get(), sent.call.num_args.get()), (0x7777, 2, 2));
    assert_eq!(sent.call.args()[..6], [9, 8, 0, 0, 0, 0], "arguments beyond their number are zero");
    // The owner is the machine's low byte above the token's low three bytes.
    assert_eq!(sent.call.owner.get(), 0x0a00_04d2);
    bench.guest.token = 0;
    bench.guest.submit(1, &[], 0);
    assert_eq!((bench.last().call.owner.get(), bench.last().header.request_id.get()), (0x10a, 2));
    bench.guest.token = 0xff00_0001;
    bench.guest.submit(1, &[], 0);
    assert_eq!(bench.last().call.owner.get(), 0x0a00_0001);
}

#[test]
fn staging_is_kept_from_call_to_call() {
    let mut bench = bench();
    bench.guest.put_inline(b"kept");
    bench.guest.submit(0x44, &[1, 2], 4);
    bench.answer_last(0, &[], &[]);
    bench.guest.ring();
    let [first, second] = &bench.kept.sent.lock().unwrap()[..] else { panic!("two calls") };
    assert_eq!((&first.data, &first.call), (&second.data, &second.call));
    assert_eq!(second.data, b"kept");
}

#[test]
fn more_results_than_there_is_room_for_are_not_there() {
    let mut bench = bench();
    bench.guest.submit(1, &[], 0);
    bench.answer_last(0, &[1, 2, 3, 4, 5, 6, 7, 8, 9], &[]);
    assert_eq!(bench.guest.read(reg::RESULT_NUM), 9);
    assert_eq!(bench.guest.collect().ok(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn an_answer_to_another_call_is_dropped() {
    let mut bench = bench();
    bench.guest.submit(Op::MemAlloc as u32, &[], 0);
    bench.guest.submit(Op::MemAlloc as u32, &[], 0);
    // Dropped: the first call's answer, even with the second's sequence number; an answer to an unknown call;
    // and invalid bytes.
    bench.answer(1, &outcome(2, 0, &[1], &[]));
    bench.answer(7, &outcome(2, 0, &[1], &[]));
    bench.answer(0, &[]);
    assert_eq!(bench.guest.read(reg::STATUS), reg::BUSY);
    bench.answer(2, &outcome(2, 0, &[2], &[]));
    assert_eq!(bench.guest.collect().one(), 2);
    // A call is answered only once.
    bench.answer(2, &outcome(2, 999, &[3], &[]));
    assert_eq!(bench.guest.collect().one(), 2);
}

#[test]
fn late_answers_to_the_first_calls_are_taken() {
    for op in [0x01, 0xf0, 0x10, 0x11, 0x90, 0x22] {
        for lag in 1..=5 {
            let mut bench = bench();
            for _ in 0..=lag {
                bench.guest.submit(op, &[], 0);
            }
            let last = bench.last();
            let (newest, seq) = (last.header.request_id.get(), last.call.seq.get());
            bench.answer(newest - lag, &outcome(seq - 1, 0, &[], &[]));
            assert_eq!(bench.guest.read(reg::STATUS), reg::BUSY, "another sequence");
            bench.answer(newest - lag, &outcome(seq, 0, &[], &[]));
            let expected = if lag <= 4 { reg::DONE } else { reg::BUSY };
            assert_eq!(bench.guest.read(reg::STATUS), expected, "{op:#x}, {lag} calls late");
        }
    }
}

#[test]
fn what_the_mediator_says_becomes_an_error_code() {
    let mut bench = bench();
    let mut after = |delivery: &dyn Fn(&Bench)| {
        bench.guest.submit(1, &[], 0);
        delivery(&bench);
        assert_eq!(bench.guest.read(reg::STATUS), mirror(&bench));
        (
            bench.guest.read(reg::STATUS),
            bench.guest.read(reg::ERROR_CODE),
            bench.guest.read(reg::RESPONSE_LEN),
        )
    };
    assert_eq!(after(&|bench| assert!(bench.inlet.deliver(Delivery::Busy))), (reg::ERROR, 0x0a, 0));
    assert_eq!(after(&|bench| assert!(bench.inlet.deliver(Delivery::Quarantined))), (reg::ERROR, 0x0b, 0));
    let closed =
        |connection| move |bench: &Bench| assert!(bench.inlet.deliver(Delivery::Closed { connection }));
    assert_eq!(after(&closed(1)), (reg::ERROR, 3, 0));
    assert_eq!(after(&closed(9)), (reg::BUSY, 0, 0), "the end of another connection");
    let short = |bench: &Bench| bench.answer(bench.last().header.request_id.get(), &[0; 87]);
    assert_eq!(after(&short), (reg::ERROR, 1, 0));
}

#[test]
fn a_send_that_fails_is_not_shown_in_bar1() {
    let mut bench = bench();
    bench.fate(Fate::Fails);
    bench.guest.submit(1, &[], 0);
    assert_eq!((bench.guest.read(reg::STATUS), bench.guest.read(reg::ERROR_CODE)), (reg::ERROR, 3));
    assert_eq!(mirror(&bench), reg::BUSY, "Q5");
    bench.fate(Fate::Unreachable);
    bench.guest.ring();
    assert_eq!((bench.guest.read(reg::STATUS), bench.guest.read(reg::ERROR_CODE)), (reg::ERROR, 3));
    assert_eq!(mirror(&bench), reg::ERROR);
    bench.fate(Fate::Sent);
    bench.guest.ring();
    bench.answer_last(0, &[], &[]);
    assert_eq!((bench.guest.read(reg::STATUS), mirror(&bench)), (reg::DONE, reg::DONE));
}

#[test]
fn a_late_answer_is_taken_when_nothing_else_was_submitted() {
    let mut bench = bench();
    bench.guest.submit(Op::LaunchKernel as u32, &[], 0);
    // The guest gave up. A release of the window shows done (Q4), and the answer is accepted nevertheless
    // (Q24).
    bench.guest.write(reg::SHMEM_CTRL, reg::SHMEM_RELEASE);
    assert_eq!((bench.guest.read(reg::STATUS), mirror(&bench)), (reg::DONE, reg::DONE));
    bench.answer_last(1, &[], &[]);
    assert_eq!(bench.guest.collect().failed(), 1);
}

#[test]
fn narrow_accesses_miss_and_clobber() {
    let bench = bench();
    let device = &bench.guest.device;
    let write = |offset, size, value| device.write(Bar::Bar0, offset, size, value);
    let read = |offset, size| device.read(Bar::Bar0, offset, size);
    write(reg::CUDA_OP, 4, 0x1122_3344);
    write(reg::CUDA_OP, 1, 0xff);
    assert_eq!(read(reg::CUDA_OP, 4), 0xff, "a byte's store is widened");
    write(reg::CUDA_OP + 1, 1, 0xee);
    assert_eq!(read(reg::CUDA_OP, 4), 0xff, "and misses the register elsewhere");
    write(reg::INLINE_REQUEST, 8, 0x8877_6655_4433_2211);
    write(reg::INLINE_REQUEST + 2, 2, 0xaabb);
    assert_eq!(read(reg::INLINE_REQUEST, 8), 0x8877_0000_aabb_2211, "neighbours are taken along");
    assert_eq!(read(reg::INLINE_REQUEST, 2), 0x2211);
    assert_eq!(read(reg::INLINE_REQUEST + 1, 1), 0x22);
    write(reg::SHMEM_GPA_LO, 8, 0x0123_4567_89ab_cdef);
    assert_eq!((read(reg::SHMEM_GPA_LO, 4), read(reg::SHMEM_GPA_HI, 4)), (0x89ab_cdef, 0x0123_4567));
    // Accesses that no bus delivers have no effect.
    write(reg::CUDA_OP + 2, 4, 5);
    write(reg::CUDA_OP, 3, 5);
    write(reg::CUDA_OP, 16, 5);
    write(u32::MAX - 3, 4, 5);
    assert_eq!((read(reg::CUDA_OP, 4), read(reg::CUDA_OP + 2, 4), read(u32::MAX - 7, 8)), (0xff, 0, 0));
    write(reg::INLINE_REQUEST + 0x3ff, 1, 7);
    assert_eq!(read(reg::INLINE_REQUEST + 0x3ff, 1), 7);
    assert_eq!(read(reg::INLINE_RESPONSE, 4), 0, "nothing beyond the buffer");
}

#[test]
fn bar1_takes_accesses_of_up_to_eight_bytes_and_shows_the_status() {
    let bench = bench();
    let device = &bench.guest.device;
    for (size, value) in [(1, 0x11), (2, 0x2222), (4, 0x3333_3333), (8, 0x4444_4444_4444_4444)] {
        device.write(Bar::Bar1, 8 * size as u32, size, value);
        assert_eq!(device.read(Bar::Bar1, 8 * size as u32, size), value);
    }
    assert_eq!(device.read(Bar::Bar1, 8, 8), 0x11, "no more than was written");
    bench.guest.write(reg::SHMEM_CTRL, 0);
    device.write(Bar::Bar1, BAR1_STATUS - 4, 8, u64::MAX);
    assert_eq!(device.read(Bar::Bar1, BAR1_STATUS - 4, 4), 0xffff_ffff);
    assert_eq!(
        device.read(Bar::Bar1, BAR1_STATUS - 4, 8),
        2 << 32,
        "Q28: eight bytes at once lose the low half"
    );
    assert_eq!(device.read(Bar::Bar1, BAR1_STATUS + 1, 1), 2, "what overlaps the status reads it");
    assert_eq!(device.read(Bar::Bar1, BAR1_STATUS + 4, 4), 0);
}

#[test]
fn the_legacy_path_leads_nowhere() {
    let bench = bench();
    for (length, error) in [(0, 9), (1, 8), (1024, 8), (1025, 2)] {
        bench.guest.write(reg::REQUEST_LEN, length);
        bench.guest.write(reg::DOORBELL, 1);
        assert_eq!((bench.guest.read(reg::STATUS), bench.guest.read(reg::ERROR_CODE)), (reg::ERROR, error));
    }
    assert!(bench.kept.sent.lock().unwrap().is_empty());
}
