//! Tests of the accesses of single calls against sequences written by hand from the protocol's worked
//! examples. An old guest makes more accesses, which the device does not need: it reads values back, and
//! stores values that are already there.

use std::collections::HashMap;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vgpu_transport::parts::{Access, RegisterError, Registers};
use vgpu_transport::{GoneReason, SessionError};
use vgpu_wire::pci::PciAddress;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::{registers as reg, split};

use crate::call::{Call, CallError, Payload};
use crate::data_bar::DataBar;
use crate::device_lock::DeviceLock;
use crate::lock_files::LockFiles;
use crate::mailbox::Mailbox;
use crate::port::scratch;

/// A device that answers each call as the test specified, and records the accesses.
#[derive(Debug, Default)]
struct Scripted(Mutex<Script>);

#[derive(Debug, Default)]
struct Script {
    log: Vec<Access>,
    values: HashMap<u32, u32>,
    /// Values that registers read after each doorbell, in order.
    answers: Vec<Vec<(u32, u32)>>,
    bar1: Vec<(u32, Vec<u8>)>,
    /// Number of reads of the status that still find the call in progress.
    busy: u32,
}

impl Registers for Scripted {
    fn access(&self, accesses: &[Access], values: &mut [u32]) -> Result<(), RegisterError> {
        let mut script = self.0.lock().unwrap();
        for (access, result) in accesses.iter().zip(values) {
            script.log.push(*access);
            match *access {
                Access::Read(reg::STATUS) if script.busy > 0 => {
                    script.busy -= 1;
                    *result = reg::BUSY;
                }
                Access::Read(offset) => *result = script.values.get(&offset).copied().unwrap_or(0),
                Access::Write(reg::CUDA_DOORBELL, 1) => {
                    let answer = if script.answers.is_empty() {
                        vec![(reg::STATUS, reg::DONE)]
                    } else {
                        script.answers.remove(0)
                    };
                    script.values.extend(answer);
                }
                Access::Write(reg::SHMEM_CTRL, value) => {
                    script.values.insert(reg::SHMEM_CTRL, value);
                    script.values.entry(reg::STATUS).insert_entry(reg::DONE);
                }
                Access::Write(offset, value) => drop(script.values.insert(offset, value)),
            }
        }
        Ok(())
    }

    fn post(&self, _: u32, _: u32, _: &dyn Fn() -> bool) -> Result<bool, RegisterError> {
        unreachable!("calls are made by accesses alone")
    }

    fn write_within(&self, _: u32, _: u32, _: Duration) -> Result<(), RegisterError> {
        unreachable!("calls are made by accesses alone")
    }
}

#[derive(Debug)]
struct ScriptedData(Arc<Scripted>);

impl DataBar for ScriptedData {
    fn write(&self, offset: u32, data: &[u8]) -> Result<(), RegisterError> {
        self.0.0.lock().unwrap().bar1.push((offset, data.to_vec()));
        Ok(())
    }

    fn read(&self, offset: u32, data: &mut [u8]) -> Result<(), RegisterError> {
        for (byte, at) in data.iter_mut().zip(offset..) {
            *byte = at as u8;
        }
        Ok(())
    }
}

/// Returns the mailbox of a scripted device, whose machine has `memory` bytes of memory for windows, or none.
fn mailbox(dir: &Path, memory: u64) -> (Arc<Scripted>, Mailbox) {
    let scripted = Arc::new(Scripted::default());
    let address: PciAddress = "0000:00:05.0".parse().unwrap();
    let at = |name: &str| dir.join(name);
    let ram = (memory > 0).then(|| at("ram"));
    let missing = Some(at("no-memory"));
    if let Some(ram) = &ram {
        std::fs::File::create(ram).unwrap().set_len(memory).unwrap();
    }
    let files =
        LockFiles { lock: at("lock"), owners: at("owners"), old_guest_pids: at("pids"), memory: None };
    let device_lock = DeviceLock::open(files).unwrap();
    let registers = Arc::clone(&scripted) as Arc<dyn Registers>;
    let data = Some(Box::new(ScriptedData(Arc::clone(&scripted))) as Box<dyn DataBar>);
    let mailbox = Mailbox::new(address, registers, data, device_lock, ram.or(missing));
    (scripted, mailbox)
}

/// Returns a machine with one process: its directory, its device, and the process's mailbox.
fn machine(memory: u64) -> (tempfile::TempDir, Arc<Scripted>, Mailbox) {
    let dir = tempfile::tempdir().unwrap();
    let (device, mailbox) = mailbox(dir.path(), memory);
    (dir, device, mailbox)
}

impl Scripted {
    fn log(&self) -> Vec<Access> {
        std::mem::take(&mut self.0.lock().unwrap().log)
    }

    fn answer(&self, answer: &[(u32, u32)]) {
        self.0.lock().unwrap().answers.push(answer.to_vec());
    }
}

fn writes(expected: &[(u32, u32)]) -> Vec<Access> {
    expected.iter().map(|&(at, value)| Access::Write(at, value)).collect()
}

/// First access under each lock, which tells whether this process was the last holder.
const MINE: [Access; 1] = [Access::Read(reg::SCRATCH)];
const RING: [Access; 2] = [Access::Write(reg::CUDA_DOORBELL, 1), Access::Read(reg::STATUS)];

#[test]
fn an_allocation() {
    let (_dir, device, mailbox) = machine(0);
    // Another call is in progress when the process makes its own, which takes a while itself.
    device.0.lock().unwrap().busy = 2;
    device.answer(&[(0x004, 2), (0x900, 0x1000), (0x904, 0x7f)]);
    let call = Call::new(Op::MemAlloc, &[4096, 0, 0, 0]).with_results(1);
    let [address, ..] = mailbox.call_plain(Some(2), &call).unwrap();
    assert_eq!(address, 0x7f_0000_1000);
    let mut expected = vec![Access::Read(reg::STATUS); 4];
    // The other call's owner is no token, so it cannot be checked.
    expected[0] = MINE[0];
    expected.extend(writes(&[
        (0x03c, scratch(2)),
        (0x080, 0x30),
        (0x084, 1),
        (0x088, 4),
        (0x08c, 0),
        (0x0b0, 4096),
        (0x0b4, 0),
        (0x0b8, 0),
        (0x0bc, 0),
    ]));
    expected.extend(RING);
    expected.extend([Access::Read(0x900), Access::Read(0x904)]);
    assert_eq!(device.log(), expected);

    // The same call again takes only the doorbell, and a second read of the status.
    device.0.lock().unwrap().busy = 1;
    mailbox.call_plain(Some(2), &call).unwrap();
    let rest = [reg::STATUS, 0x900, 0x904].map(Access::Read);
    assert_eq!(device.log(), [&MINE[..], &RING, &rest].concat());
}

#[test]
fn sixteen_bytes_to_the_device_without_a_window() {
    let (_dir, device, mailbox) = machine(0);
    mailbox.call_plain(Some(0), &Call::new(Op::Init, &[])).unwrap();
    device.log();
    let data: Vec<u8> = (1..=16).collect();
    let args = [0x1000, 0x7f, 16, 0];
    mailbox
        .call_plain(Some(0), &Call::new(Op::MemcpyHtoD, &args).with_padded_payload(Payload::Bytes(&data)))
        .unwrap();
    let mut expected = writes(&[
        (0x100, 0x0403_0201),
        (0x104, 0x0807_0605),
        (0x108, 0x0c0b_0a09),
        (0x10c, 0x100f_0e0d),
        (0x080, 0x32),
        (0x088, 4),
        (0x08c, 16),
        (0x0b0, 0x1000),
        (0x0b4, 0x7f),
        (0x0b8, 16),
        (0x0bc, 0),
    ]);
    expected.extend(RING);
    assert_eq!(device.log(), [&MINE[..], &expected].concat());
}

#[test]
fn a_mebibyte_through_the_window_and_64_kib_back() {
    let (dir, device, mailbox) = machine(4 << 20);
    mailbox.call_plain(Some(0), &Call::new(Op::Init, &[])).unwrap();
    device.log();
    let data: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 253) as u8 + 1).collect();
    let args = [0x1000, 0x7f, 1 << 20, 0];
    let upload = Call::new(Op::MemcpyHtoD, &args).with_padded_payload(Payload::Bytes(&data));
    mailbox.call_plain(Some(0), &upload).unwrap();
    let mut expected = writes(&[(0x940, 0), (0x944, 0), (0x948, 4 << 20), (0x94c, 1)]);
    expected.push(Access::Read(reg::STATUS));
    expected.extend(writes(&[(0x080, 0x32), (0x088, 4), (0x08c, 1 << 20), (0x0b0, 0x1000), (0x0b4, 0x7f)]));
    expected.extend(writes(&[(0x0b8, 1 << 20), (0x0bc, 0)]));
    expected.extend(RING);
    assert_eq!(device.log(), [&MINE[..], &expected].concat());
    let mut ram = std::fs::read(dir.path().join("ram")).unwrap();
    assert!(ram[..1 << 20] == data, "what lies in the first half");

    // A second call: the window still belongs to this process.
    mailbox.call_plain(Some(0), &upload).unwrap();
    assert_eq!(device.log(), [&MINE[..], &RING].concat());

    ram[2 << 20..][..65536].fill(7);
    std::fs::write(dir.path().join("ram"), &ram).unwrap();
    device.answer(&[(0x004, 2), (0x0f8, 65536)]);
    let mut back = vec![0_u8; 65536];
    let to = NonNull::new(back.as_mut_ptr()).unwrap();
    let args = [0x1000, 0x7f, 65536, 0];
    let call = Call { back: Some((to, back.len())), ..Call::new(Op::MemcpyDtoH, &args) };
    // SAFETY: the buffer is as long as it is said to be.
    unsafe { mailbox.call(Some(0), &call) }.unwrap();
    let mut expected = writes(&[(0x080, 0x33), (0x08c, 0), (0x0b8, 65536)]);
    expected.extend(RING);
    expected.push(Access::Read(0x0f8));
    assert_eq!(device.log(), [&MINE[..], &expected].concat());
    assert!(back.iter().all(|&byte| byte == 7));

    // Q14: The host returns success without data.
    device.answer(&[(0x004, 2), (0x0f8, 0)]);
    // SAFETY: as above.
    assert_eq!(unsafe { mailbox.call(Some(0), &call) }, Err(CallError::Status(999)));
}

/// Q6: A payload of zeros in the window looks as if it were in BAR1, if there are other bytes there.
#[test]
fn before_zeros_the_other_place_is_cleared() {
    let (_dir, device, mailbox) = machine(4 << 20);
    let zeros = [0; 4096];
    let args = [0, 0, 4096, 0];
    let upload = Call::new(Op::MemcpyHtoD, &args).with_padded_payload(Payload::Bytes(&zeros));
    mailbox.call_plain(Some(0), &upload).unwrap();
    mailbox.call_plain(Some(0), &upload).unwrap();
    assert_eq!(device.0.lock().unwrap().bar1, [(0, vec![0; 512])], "once");
}

/// Sections 5 and 8.5: A process without pages ensures that none are registered before it sends payload that
/// does not fit BAR0.
#[test]
fn without_pages_another_process_s_window_is_released() {
    let (_dir, device, mailbox) = machine(0);
    let data = [5; 2000];
    mailbox
        .call_plain(Some(0), &Call::new(Op::LaunchKernel, &[]).with_padded_payload(Payload::Bytes(&data)))
        .unwrap();
    let log = device.log();
    assert_eq!(log[2], Access::Write(reg::SHMEM_CTRL, 0), "{log:?}");
    assert_eq!(device.0.lock().unwrap().bar1, [(0, data.to_vec())]);
}

/// Q4, Q10, Q30: An old guest changes the window without waiting for the lock, and assumes that nobody else
/// changes it.
#[test]
fn among_old_guests_the_window_is_left_as_it_was() {
    let (dir, device, mailbox) = machine(4 << 20);
    let data = [5; 2000];
    let call = Call::new(Op::LaunchKernel, &[]).with_padded_payload(Payload::Bytes(&data));
    mailbox.call_plain(Some(0), &call).unwrap();
    std::fs::write(dir.path().join("pids"), "77\n").unwrap();
    device.log();
    let looks = [reg::SHMEM_GPA_LO, reg::SHMEM_GPA_HI, reg::SHMEM_SIZE, reg::SHMEM_CTRL].map(Access::Read);
    let (given, taken) = (Access::Write(reg::SHMEM_CTRL, 0), Access::Write(reg::SHMEM_CTRL, 1));
    // The window belonged to this process before the old guests came.
    mailbox.call_plain(Some(0), &call).unwrap();
    assert_eq!(device.log(), [&MINE[..], &looks, &RING, &[given]].concat());
    // From then on it is registered for each call that needs it.
    mailbox.call_plain(Some(0), &call).unwrap();
    let taking = [taken, Access::Read(reg::STATUS)];
    assert_eq!(device.log(), [&MINE[..], &looks, &taking, &RING, &[given]].concat());
    mailbox.call_plain(Some(0), &Call::new(Op::StreamQuery, &[1, 0])).unwrap();
    assert!(!device.log().iter().any(|access| [given, taken].contains(access)), "others leave it alone");

    // The window of an old guest is registered again.
    let theirs = [(reg::SHMEM_GPA_LO, 0x10_0000), (reg::SHMEM_GPA_HI, 1), (reg::SHMEM_SIZE, 0x8000)];
    device.0.lock().unwrap().values.extend(theirs);
    device.0.lock().unwrap().values.insert(reg::SHMEM_CTRL, 1);
    mailbox.call_plain(Some(0), &call).unwrap();
    let log = device.log();
    let [.., low, high, bytes, control] = log[..] else { panic!("{log:?}") };
    let [a, b, c] = theirs.map(|(register, value)| Access::Write(register, value));
    assert_eq!([low, high, bytes, control], [a, b, c, taken]);
    assert!(log.contains(&Access::Write(reg::SHMEM_GPA_LO, 0)), "meanwhile it was this process's: {log:?}");

    // An old guest made a call, so the values of the registers are no longer known.
    device.0.lock().unwrap().values.insert(reg::SCRATCH, 77);
    mailbox.call_plain(Some(0), &call).unwrap();
    assert!(device.log().contains(&Access::Write(reg::SCRATCH, scratch(0))));
}

/// Guests with older shims are not in the list that this process can see. One ran between two calls of this
/// process and left its own arguments in the registers, which only the scratch register shows. The mailbox
/// notices, writes every argument again, and stops using its window.
#[test]
fn an_old_guest_that_nothing_but_scratch_tells_of_is_noticed() {
    let (dir, device, mailbox) = machine(4 << 20);
    let (data, args) = ([5; 2000], [0x1000, 0x7f, 2000, 0]);
    let upload = Call::new(Op::MemcpyHtoD, &args).with_padded_payload(Payload::Bytes(&data));
    mailbox.call_plain(Some(0), &upload).unwrap();
    assert_eq!(device.log().last(), Some(&RING[1]), "alone, it keeps its window");
    let left = [(reg::SCRATCH, 77), (reg::CUDA_OP, 0xfe), (reg::CUDA_NUM_ARGS, 1), (reg::CUDA_ARGS, 77)];
    device.0.lock().unwrap().values.extend(left);
    mailbox.call_plain(Some(0), &upload).unwrap();
    let log = device.log();
    for (register, value) in [(reg::SCRATCH, scratch(0)), (reg::CUDA_NUM_ARGS, 4), (reg::CUDA_ARGS, 0x1000)] {
        assert!(log.contains(&Access::Write(register, value)), "{register:#x}: {log:?}");
    }
    assert_eq!(log.last(), Some(&Access::Write(reg::SHMEM_CTRL, 0)), "{log:?}");
    // Another old guest may come at any time, and other new processes know that too.
    mailbox.call_plain(Some(0), &upload).unwrap();
    assert_eq!(device.log().last(), Some(&Access::Write(reg::SHMEM_CTRL, 0)));
    let (_, sibling) = self::mailbox(dir.path(), 0);
    assert!(sibling.device_lock().acquire(Some(1)).unwrap().old_guests);
}

/// Q30: a process that is killed leaves its pages registered.
#[test]
fn the_window_of_a_dead_process_is_released_by_the_next_turn() {
    let (dir, device, dead) = machine(4 << 20);
    let data = [5; 2000];
    dead.call_plain(Some(7), &Call::new(Op::LaunchKernel, &[]).with_padded_payload(Payload::Bytes(&data)))
        .unwrap();
    // No process holds its token, so it is dead.
    let (_, mut next) = mailbox(dir.path(), 4 << 20);
    next.port.registers = Arc::clone(&device) as Arc<dyn Registers>;
    device.log();
    next.call_plain(Some(0), &Call::new(Op::StreamQuery, &[1, 0])).unwrap();
    assert!(device.log().contains(&Access::Write(reg::SHMEM_CTRL, 0)));
    next.call_plain(Some(0), &Call::new(Op::StreamQuery, &[1, 0])).unwrap();
    assert!(!device.log().contains(&Access::Write(reg::SHMEM_CTRL, 0)), "once");
}

/// A process was killed during a call that never completes. The next process makes the host end that call,
/// and does not wait for calls of other processes.
#[test]
fn the_call_of_a_dead_process_is_ended_by_the_next_turn() {
    let (_dir, device, mailbox) = machine(0);
    let cleanup = |token| {
        let stores = [
            (reg::SCRATCH, scratch(token)),
            (reg::CUDA_OP, 0xfe),
            (reg::CUDA_SEQ, 1),
            (reg::CUDA_NUM_ARGS, 1),
        ];
        let more = [(reg::CUDA_DATA_LEN, 0), (reg::CUDA_ARGS, scratch(token))];
        [writes(&stores), writes(&more), RING.to_vec()].concat()
    };
    let come = |whose: u32, token: Option<u32>| {
        let mut script = device.0.lock().unwrap();
        script.values.extend([(reg::SCRATCH, whose), (reg::STATUS, reg::DONE)]);
        // The call takes longer than the read that finds it: an answer to a doorbell would come sooner.
        script.busy = 1;
        drop(script);
        device.log();
        mailbox.call_plain(token, &Call::new(Op::MemGetInfo, &[])).unwrap();
        device.log()
    };
    let asks = [MINE[0], Access::Read(reg::STATUS)];
    for token in [None, Some(0), Some(5)] {
        let log = come(scratch(5), token);
        let expected = [&asks[..], &cleanup(5)].concat();
        assert_eq!(log[..expected.len()], expected, "the token is free, or was: {token:?}");
    }
    // A live process whose device lock was closed; an old guest; a process without a token; no token.
    assert!(mailbox.device_lock().owners.is_free(7).unwrap());
    let owners = vgpu_transport::parts::LockFile::open(mailbox.device_lock().owners.path()).unwrap();
    assert!(owners.try_lock(7).unwrap());
    for whose in [scratch(7), 1234, 0, scratch(64)] {
        let log = come(whose, None);
        assert_eq!(log[..2], asks);
        assert!(!log.contains(&Access::Write(reg::CUDA_OP, 0xfe)), "{whose:#x}: {log:?}");
    }
}

#[test]
fn who_waits_for_results_gives_the_window_up() {
    let (_dir, device, mailbox) = machine(4 << 20);
    let data = [5; 2000];
    let call = Call::new(Op::LaunchKernel, &[]).with_padded_payload(Payload::Bytes(&data));
    mailbox.call_plain(Some(0), &call).unwrap();
    device.log();
    mailbox.release_window_while_idle(0).unwrap();
    assert_eq!(device.log().last(), Some(&Access::Write(reg::SHMEM_CTRL, 0)));
    mailbox.release_window_while_idle(0).unwrap();
    assert_eq!(device.log(), [], "once");
    mailbox.call_plain(Some(0), &call).unwrap();
    let taking = [Access::Write(reg::SHMEM_CTRL, 1), Access::Read(reg::STATUS)];
    assert_eq!(device.log(), [&MINE[..], &taking, &RING].concat(), "where the pages lie is known");
}

#[test]
fn errors_are_told_apart() {
    let (_dir, device, mailbox) = machine(0);
    let call = Call::new(Op::StreamQuery, &[1, 0]);
    let failed = |answer: &[(u32, u32)]| {
        device.answer(answer);
        mailbox.call_plain(Some(0), &call).unwrap_err()
    };
    let gone = |reason| CallError::Lost(SessionError::Gone { reason });
    assert_eq!(failed(&[(0x004, 3), (0x014, 5), (0x0f0, 600)]), CallError::Status(600));
    assert_eq!(failed(&[(0x004, 3), (0x014, 5), (0x0f0, 801)]), CallError::Status(801));
    assert_eq!(
        failed(&[(0x004, 3), (0x014, 5), (0x0f0, 0)]),
        CallError::Status(999),
        "a failure without a code"
    );
    // These are the codes of section 5, except 0x0a. 46 is CUDA_ERROR_DEVICE_UNAVAILABLE.
    for (code, reason) in [
        (0, GoneReason::Nonsense),
        (1, GoneReason::Nonsense),
        (2, GoneReason::Nonsense),
        (3, GoneReason::Mediator),
        (4, GoneReason::Nonsense),
        (6, GoneReason::Nonsense),
        (7, GoneReason::Nonsense),
        (8, GoneReason::Nonsense),
        (9, GoneReason::Nonsense),
        (0x0b, GoneReason::Quarantined),
        (0x0c, GoneReason::Nonsense),
        (u32::MAX, GoneReason::Nonsense),
    ] {
        // The result's register, in which an earlier call left 600, is not read.
        assert_eq!(failed(&[(0x004, 3), (0x014, code), (0x0f0, 600)]), gone(reason), "error {code:#x}");
        assert_eq!((SessionError::Gone { reason }).code(), 46);
    }
    for status in [0, 4, 0x8000_0000] {
        assert_eq!(failed(&[(0x004, status)]), gone(GoneReason::Nonsense), "status {status:#x}");
    }
    assert_eq!(failed(&[(0x004, u32::MAX)]), gone(GoneReason::AllOnes));
}

/// Q23: A call that the mediator rejects for now is made again.
#[test]
fn a_call_that_was_turned_away_is_made_again() {
    let (_dir, device, mailbox) = machine(0);
    device.answer(&[(0x004, 3), (0x014, 0x0a)]);
    device.answer(&[(0x004, 3), (0x014, 0x0a)]);
    device.answer(&[(0x004, 2)]);
    mailbox.call_plain(Some(0), &Call::new(Op::MemFree, &split(0x7f_0000))).unwrap();
    let doorbells = device.log().iter().filter(|access| **access == RING[0]).count();
    assert_eq!(doorbells, 3);
}

/// Section 10.5: The mediator hangs up after it rejects a call, and a call that the device sends before it
/// notices is lost. The next caller, this process or another, gets the error for a missing mediator, and its
/// next try succeeds.
#[test]
fn a_call_that_is_lost_behind_one_that_was_turned_away_is_made_again() {
    let (_dir, device, mailbox) = machine(0);
    let args = split(0x7f_0000);
    let call = Call::new(Op::MemFree, &args);
    let gone = Err(CallError::from(GoneReason::Mediator));
    let limited = [(0x004, 3), (0x014, 0x0a)];
    let missing = [(0x004, 3), (0x014, 3)];
    for answers in [[limited, missing, [(0x004, 2), (0x014, 0)]], [limited, missing, limited]] {
        for answer in &answers {
            device.answer(answer);
        }
        device.answer(&[(0x004, 2)]);
        mailbox.call_plain(Some(0), &call).unwrap();
        device.0.lock().unwrap().answers.clear();
    }
    // A call is not repeated twice, nor after a call that was answered.
    for answer in &[limited, missing, missing] {
        device.answer(answer);
    }
    assert_eq!(mailbox.call_plain(Some(0), &call), gone);
    device.answer(&missing);
    assert_eq!(mailbox.call_plain(Some(0), &call), gone);

    // The rejected call was another process's.
    device.answer(&limited);
    device.answer(&[(0x004, 3), (0x014, 5), (0x0f0, 1)]);
    assert_eq!(mailbox.call_plain(Some(0), &call), Err(CallError::Status(1)));
    for (code, lost) in [(0x0a, false), (0x0b, false), (5, true), (3, true)] {
        device.0.lock().unwrap().values.extend([(0x004, 3), (0x014, code)]);
        device.answer(&missing);
        device.answer(&[(0x004, 2)]);
        let made = mailbox.call_plain(Some(code), &call);
        assert_eq!(made.is_err(), lost, "behind error {code}");
        device.0.lock().unwrap().answers.clear();
    }
}
