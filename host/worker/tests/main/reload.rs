//! Tests of devices that are saved and restored while their sessions have workers, which compute on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;
use vgpu_device::{DeviceConfig, Limits, NotSaved, PauseError, Ram};
use vgpu_executor_null::Null;
use vgpu_host_testing::bench::{CHANNELS, MEMORY, SHARED, config, folder, gpu};
use vgpu_host_testing::commands::{LAUNCH, allocate, window};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_host_testing::reload::Reloadable;
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{MemAlloc, MemFree, MemInfo, MemInfoReply};
use vgpu_wire::body::session::{WindowAlloc, WindowFree};
use vgpu_wire::body::stream::{Signal, StreamCreate, StreamHold, StreamRelease};
use vgpu_wire::registers::{Refusal, channel};
use vgpu_wire::{Mark, Span, area};
use vgpu_worker::{WorkerConfig, WorkerExecutor};
use zerocopy::FromBytes;

use crate::bench::{RAM, worker_config};
use crate::death::kill;
use crate::probe;

/// Returns a device whose sessions have workers of this kind.
fn reloadable(kind: &str) -> Reloadable {
    reloadable_of(worker_config(kind), Limits::default())
}

/// Returns a device whose sessions have such workers.
pub fn reloadable_of(workers: WorkerConfig, limits: Limits) -> Reloadable {
    let ram = memory();
    Reloadable::new(move || DeviceConfig { limits, ..configured(&workers, &ram) })
}

/// Returns the memory of a guest.
pub fn memory() -> Arc<Ram> {
    let folder = folder();
    Arc::new(Ram::create(&folder.path().join("ram"), RAM).expect("guest memory"))
}

/// Returns the configuration of such a device. The GPU is the same each time, with its UUID and its addresses.
pub fn configured(workers: &WorkerConfig, ram: &Arc<Ram>) -> DeviceConfig {
    let executor = WorkerExecutor::new(workers.clone()).expect("an executor of workers");
    DeviceConfig { memory: Some(Arc::clone(ram) as _), ..config(executor) }
}

fn launch(function: u32) -> Launch {
    Launch { function, ..LAUNCH }
}

fn state(text: &str) -> Value {
    serde_json::from_str(text).expect("the state")
}

/// Returns what the state says of a running session.
fn running(text: &str, channel: usize) -> Value {
    state(text)["channels"][channel]["session"]["running"].clone()
}

/// Sends work that ends when a hold is released, so that the worker reads its ring no further.
fn stand_still(guest: &mut Guest, hold: u32) {
    guest.send(&StreamHold { stream: 0, hold, mark: Mark::NONE }, &[]);
    guest.send(&launch(probe::WAIT_FOR_RELEASE), &[]);
}

pub fn work_in_flight_goes_on_in_the_next_process() {
    let device = Arc::new(reloadable("soft"));
    let mut guest = device.guest(2);
    let memory = allocate(&mut guest, 1 << 20);
    let worker = device.session(2).expect("a session").worker;
    let over = Arc::new(AtomicBool::new(false));
    let reloads = {
        let (device, over) = (Arc::clone(&device), Arc::clone(&over));
        thread::spawn(move || {
            let mut reloads = 0;
            while !over.load(Ordering::Relaxed) || reloads < 20 {
                device.pause_and_resume().expect("a state");
                // Each leaves threads and descriptors behind.
                if reloads < 40 {
                    device.reload();
                    reloads += 1;
                }
            }
            reloads
        })
    };
    let staging = guest.area + area::STAGING;
    for round in 1..=300_u64 {
        let data: Vec<u8> = (0..0x4000_u64).map(|at| (at * 7 + round) as u8).collect();
        for (part, bytes) in data.chunks(0x1000).enumerate() {
            let destination = memory + (part * 0x1000) as u64;
            let source = Span::inline(0x1000);
            guest.send(&CopyIn { stream: 0, reserved: 0, destination, source, read: Mark::NONE }, bytes);
        }
        let destination = Span::bar(staging, 0x4000);
        let written = Mark::new(1, round);
        guest.send(&CopyOut { stream: 0, reserved: 0, source: memory, destination, written }, &[]);
        if round % 2 == 0 {
            guest.wait_word(1, round);
        } else {
            guest.sleep_for_word(1, round);
        }
        assert_eq!(guest.function.get(staging, 0x4000), data, "{round}");
        if round % 10 == 0 {
            let more = allocate(&mut guest, 0x1000);
            guest.echo();
            guest.send(&MemFree { address: more }, &[]);
        }
    }
    over.store(true, Ordering::Relaxed);
    assert!(reloads.join().expect("reloads") >= 20);
    until("all is done", || guest.done() == guest.number);
    let session = device.session(2).expect("a session");
    assert_eq!((session.worker, session.messages, guest.late()), (worker, guest.number, None));
    guest.detach();
    let status = device.device().status();
    assert_eq!((status.workers_started, status.workers_running), (Some(1), Some(0)));
    assert_eq!((status.allocated, status.charged_bytes), (0, 0));
}

/// The worker's ring is full, so that frames wait, and later messages wait behind them.
pub fn a_kernel_that_never_ends_keeps_no_pause_waiting() {
    let device = reloadable("probe");
    let mut guest = device.guest(0);
    let data = vec![7; 60 << 10];
    let memory = allocate(&mut guest, 60 << 10);
    for hold in 1..=2 {
        stand_still(&mut guest, hold);
        for _ in 0..18 {
            let source = Span::inline(60 << 10);
            let body = CopyIn { stream: 0, reserved: 0, destination: memory, source, read: Mark::NONE };
            guest.send(&body, &data);
        }
        let created = StreamCreate { stream: hold, flags: 0, priority: 0, reserved: 0 };
        guest.send(&created, &[]);
        guest.send(&Signal { stream: hold, reserved: 0, mark: Mark::new(5, hold.into()) }, &[]);
        let backlog = |text: &str| {
            let running = running(text, 0);
            running["executor"]["worker"]["backlog"].as_u64().expect("a number")
        };
        until("frames wait", || backlog(&device.pause_and_resume().unwrap().to_json().unwrap()) > 0);
        for _ in 0..3 {
            assert!(backlog(&device.reload()) > 0);
        }
        assert_eq!(guest.word(5), u64::from(hold) - 1, "the worker stands still");
        guest.store_release(hold);
        guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
        guest.wait_word(5, hold.into());
    }
    guest.echo();
    assert_eq!(guest.late(), None);
}

/// Memory lacks until the worker has carried out a message that frees some.
pub fn an_allocation_that_waits_is_carried_out_once() {
    let device = reloadable("probe");
    let mut guest = device.guest(0);
    let mut first = allocate(&mut guest, MEMORY * 3 / 4);
    for hold in 1..=2 {
        stand_still(&mut guest, hold);
        guest.send(&MemFree { address: first }, &[]);
        let number = if hold == 1 {
            guest.send(&MemAlloc { reply: 3, flags: 0, bytes: MEMORY / 2 }, &[])
        } else {
            guest.send(&MemInfo { reply: 3, reserved: 0 }, &[])
        };
        guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(5, hold.into()) }, &[]);
        let pending = |text: &str| !running(text, 0)["dispatch"]["pending"].is_null();
        until("the message waits", || pending(&device.pause_and_resume().unwrap().to_json().unwrap()));
        for _ in 0..2 {
            let text = device.reload();
            assert!(pending(&text), "it waits still");
            let known = running(&text, 0)["executor"]["worker"]["known"].as_u64().expect("a number");
            assert!(known < number && guest.done() < number, "it is not carried out");
        }
        guest.store_release(hold);
        guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
        let (status, answer) = guest.answer(3, number);
        assert_eq!(status, 0);
        guest.wait_word(5, hold.into());
        if hold == 1 {
            let second = u64::from_le_bytes(answer.try_into().expect("an address"));
            until("all is done", || guest.done() == guest.number);
            let allocated = device.device().status().allocated;
            assert_eq!(allocated, MEMORY / 2, "the first is free, and the second is charged once");
            guest.send(&MemFree { address: second }, &[]);
            first = allocate(&mut guest, MEMORY * 3 / 4);
        } else {
            let info = MemInfoReply::read_from_bytes(&answer).expect("an answer");
            assert_eq!((info.free, info.total), (MEMORY, MEMORY));
        }
    }
}

/// Window memory that the worker has not released yet is needed by the next request.
pub fn a_request_for_window_memory_waits_on() {
    let device = reloadable("probe");
    let mut guest = device.guest(0);
    guest.send(&launch(1), &[]);
    for hold in 1..200 {
        let request = WindowAlloc { reply: 3, reserved: 0, bytes: SHARED };
        until("the window is free", || guest.call(request, &[]).0 == 0);
        let offset = u64::from(CHANNELS) * area::AREA_BYTES;
        until("all is done", || guest.done() == guest.number);
        stand_still(&mut guest, hold);
        guest.send(&WindowFree { offset }, &[]);
        let number = guest.send(&request, &[]);
        until("it is freed", || device.session(0).expect("a session").window_bytes == 0);
        let mut waited = false;
        device.reload_after(|text| {
            waited = !running(text, 0)["dispatch"]["pending"].is_null();
            // The worker releases the memory while nobody reads its reports. It knows then of all messages but
            // the one that waits.
            guest.store_release(hold);
            if waited {
                until("it is released", || guest.done() == number - 1);
            }
        });
        guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
        let (status, _) = guest.answer(3, number);
        if status == 0 && waited {
            assert_eq!(device.session(0).expect("a session").window_bytes, SHARED);
            return;
        }
        // The device was paused before the message was read, or after it had waited for long; or this machine
        // was too slow for the wait after that.
        if status == 0 {
            guest.send(&WindowFree { offset }, &[]);
        }
    }
    panic!("no request ever waited");
}

pub fn a_session_that_failed_stays_failed_until_it_is_detached() {
    let device = reloadable("probe");
    let (mut victim, mut neighbour) = (device.guest(0), device.guest(1));
    let range = window(&mut victim, 0x1_0000);
    victim.send(&launch(probe::PANIC), &[]);
    let ended = victim.ended();
    assert_eq!((ended.0, ended.1), (999, area::ERROR_STICKY | area::ERROR_ENDED));
    let lost = device.device().figures().lost;
    let text = device.reload();
    assert!(running(&text, 0).is_null() && !running(&text, 1).is_null());
    assert_eq!(victim.ended(), ended);
    assert_eq!(victim.register(channel::ERROR), Refusal::Executor as u32);
    assert_eq!((device.device().figures().lost, lost.worker), (lost, 1));
    // Its memory is its own until it has detached.
    let taken = window(&mut neighbour, 0x1_0000);
    assert_ne!(taken, range);
    victim.detach();
    let mut next = device.guest(0);
    assert_eq!(window(&mut next, 0x1_0000), range);
    next.send(&launch(1), &[]);
    next.echo();
    assert!(next.register(channel::SESSION) > neighbour.register(channel::SESSION));
}

/// A worker dies while the device is paused, or is dying when it is.
pub fn the_death_of_a_worker_is_noticed_by_the_next_process() {
    let device = reloadable("probe");
    for case in 0..6 {
        let mut guest = device.guest(0);
        guest.send(&launch(1), &[]);
        until("all is done", || guest.done() == guest.number);
        let worker = device.session(0).expect("a session").worker.expect("a worker");
        if case % 2 == 0 {
            device.reload_after(|_| kill(worker));
        } else {
            kill(worker);
            device.reload();
        }
        assert_eq!(guest.ended().0, 999);
        let pid = Pid::from_raw(worker.cast_signed()).expect("a process");
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        assert!(waitid(WaitId::Pid(pid), look).is_err(), "it is reaped");
        guest.detach();
        assert_eq!(device.device().status().workers_running, Some(0));
    }
    assert_eq!(device.device().figures().lost.worker, 6);
}

/// The supervisor always has another report to read.
pub fn a_worker_that_reports_without_end_keeps_no_pause_waiting() {
    let device = reloadable("probe");
    let mut guest = device.guest(0);
    let number = guest.send(&launch(probe::FLOOD), &[]);
    until("it is read", || device.session(0).expect("a session").messages == number);
    for _ in 0..10 {
        device.pause_and_resume().expect("a state");
        device.reload();
    }
    assert_eq!(device.session(0).expect("a session").state, "attached");
    guest.detach();
}

/// A session without a worker starts one after a reload, and one that is held stays held.
pub fn sessions_without_a_worker_and_held_ones_are_restored() {
    let device = reloadable("null");
    let (mut one, mut two) = (device.guest(3), device.guest(7));
    two.send(&launch(1), &[]);
    until("all is done", || two.done() == two.number);
    let generation = device.device().generation();
    device.device().hold();
    one.send(&launch(1), &[]);
    two.send(&launch(1), &[]);
    until("both wait", || two.head() == two.tail && one.head() == one.tail);
    let text = device.reload();
    assert!(running(&text, 3)["taken"].is_string() && running(&text, 3)["executor"]["worker"].is_null());
    assert_eq!(device.session(3).expect("a session").state, "held");
    assert_eq!((one.done(), two.done()), (one.number - 1, two.number - 1));
    device.device().release();
    until("all is done", || one.done() == one.number && two.done() == two.number);
    assert_eq!(
        (device.device().generation(), device.device().status().workers_started),
        (generation, Some(2))
    );
    one.detach();
    two.detach();
}

pub fn what_cannot_be_saved_goes_on() {
    let plain = Reloadable::new(|| config(Null::new(&gpu()).expect("a null executor")));
    let mut guest = plain.guest(0);
    let refused = plain.pause_and_resume().unwrap_err();
    assert_eq!(refused, PauseError::Executor { executor: "null", source: NotSaved::InProcess });
    guest.echo();
    // A session whose worker does not end when it is told to is not waited for.
    let device = reloadable("probe");
    let (victim, mut neighbour) = (device.guest(0), device.guest(1));
    let number = {
        let mut victim = victim;
        victim.send(&launch(1), &[]);
        until("all is done", || victim.done() == victim.number);
        victim.send(&launch(probe::HANG_FOR_EVER), &[]);
        victim.wait_word(probe::HANGING, 1);
        let number = victim.register(channel::SESSION);
        victim.function.write(channel::base(0) + channel::DETACH_SESSION, number);
        number
    };
    let paused = device.device().pause(Instant::now() + std::time::Duration::from_millis(50));
    assert_eq!(paused.unwrap_err(), PauseError::Busy(vec![number]));
    neighbour.echo();
    assert_eq!(device.session(1).expect("a session").state, "attached");
    until("the worker is killed", || device.session(0).is_none());
    device.reload();
    neighbour.echo();
}
