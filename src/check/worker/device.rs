//! Implements `vgpu-run __worker device ADDRESS`: opens a device as the shims do, exchanges messages with its
//! host, and measures its speed.

use std::time::{Duration, Instant};

use nix::libc;
use vgpu_probe_steps::Message;
use vgpu_transport::{
    AddressRefusal, AttachError, Device, GoneReason, PciFunction, Progress, Session, SessionError,
    WindowMemory, scan, sysfs_root,
};
use vgpu_transport_v1::lock_files;
use vgpu_wire::body::memory::{MemInfo, MemInfoReply};
use vgpu_wire::body::session::Echo;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::registers::Refusal;
use zerocopy::{FromZeros, IntoBytes};

use super::say::{begin, done, failed, follow_progress, watch};
use crate::check::limits;
use crate::check::messages::{
    Answer, Attach, Close, Echoes, Facts, Memory, Open, Ready, Speech, StepFailure, Window,
};
use crate::device::facts::{text, uuid};
use crate::device::survey::size;
use crate::device::{self, DeviceError};
use crate::diagnosis::{Cause, Finding, LinkId, cause};
use crate::error;

/// Time limit for reading registers, which takes microseconds.
const ANSWER: Duration = Duration::from_secs(1);
/// Time limit for attaching, for which the host starts a thread.
const ATTACH: Duration = Duration::from_millis(1500);
/// Time limit of every other step.
const USUAL: Duration = Duration::from_secs(2);
/// Number of echoes that are measured.
const ECHOES: usize = 200;
/// Time limit for all echoes. Fewer are measured if the host is slow.
const ECHO_TIME: Duration = Duration::from_millis(100);
/// Size in bytes of the window memory for measurements.
const STRETCH: usize = 4 << 20;
/// Size in bytes of the first read from the window. A read of eight bytes from a BAR may take a microsecond.
const READ_FIRST: usize = 64 << 10;

/// Examines the function with this PCI address and reports each step.
pub fn examine(address: &str) {
    watch();
    match function(address) {
        // A failed step has already been reported, and the next steps depend on it.
        Ok(function) => _ = steps(&function),
        Err(error) => failed::<Open>(&refusal(error)),
    }
}

/// Finds the function with this PCI address.
pub(super) fn function(address: &str) -> Result<PciFunction, DeviceError> {
    let functions = scan(&sysfs_root()).map_err(DeviceError::Scan)?;
    let found = functions.into_iter().find(|function| function.address.to_string() == address);
    found.ok_or_else(|| DeviceError::Absent(sysfs_root()))
}

/// Converts an error of the launcher into the failure of a step.
pub(super) fn refusal(error: DeviceError) -> StepFailure {
    let failure = error::Failure::from(error);
    let unknown = || StepFailure { found: failure.sentence(), ..StepFailure::default() };
    failure.finding().map_or_else(unknown, StepFailure::from)
}

/// Creates the failure of a step with this cause. The reader of the message adds the remedy.
fn broken(cause: Cause, found: impl Into<String>) -> StepFailure {
    StepFailure { fix: None, ..Finding::fail(cause, found).into() }
}

/// Reports the failure of the step `M`. Returns `None`, which ends the examination.
fn stop<M: Message, T>(failure: &StepFailure) -> Option<T> {
    failed::<M>(failure);
    None
}

fn steps(function: &PciFunction) -> Option<()> {
    let root = sysfs_root();
    let name = function.address.to_string();
    let refused = |error| refusal(device::judge::refused(function, &root, error));

    begin::<Open>(ANSWER);
    let opened = Device::open(function, Some(vgpu_transport_v1::open))
        .and_then(|device| Ok((device.probe()?, device)));
    let (probe, opened) = match opened {
        Ok((probe, device)) => (probe, device),
        Err(error) => return stop::<Open, _>(&refused(error)),
    };
    let attached = probe.attached.count_ones();
    done(&Open {
        protocol: probe.protocol,
        capabilities: probe.capabilities,
        wire: probe.wire_version,
        digest: format!("{:016x}", probe.digest),
        generation: probe.generation,
        window_mib: probe.window_mib,
        channels: probe.channels,
        attached,
        vm: probe.vm_id,
        futex: probe.wake_futex,
        kind: kind(function).to_owned(),
    });

    follow_progress(Progress::open(&opened).ok());
    begin::<Answer>(ANSWER);
    let began = Instant::now();
    match opened.ping() {
        Ok(()) => done(&Answer { us: micros(began) }),
        Err(error) => return stop::<Answer, _>(&refused(error)),
    }
    if let Err(error) = device::judge::agrees(name.clone(), &probe) {
        return stop::<Speech, _>(&refusal(error));
    }
    done(&Speech {});

    match opened.facts() {
        Ok(facts) => done(&told(&facts)),
        Err(error) => failed::<Facts>(&refused(error)),
    }
    if let Err(error) = device::judge::ready(name, &probe) {
        return stop::<Ready, _>(&refusal(error));
    }
    done(&Ready {});

    begin::<Attach>(ATTACH);
    let began = Instant::now();
    let session = match Session::attach(opened) {
        Ok(session) => session,
        Err(error) => return stop::<Attach, _>(&attach_refusal(&error, !lock_files(function).is_empty())),
    };
    done(&Attach { us: micros(began), number: session.number(), channel: session.channel() });
    echo(&session)?;
    memory(&session)?;
    window(&session)?;
    begin::<Close>(USUAL);
    session.close();
    done(&Close {});
    Some(())
}

/// Converts an error of attaching to the failure of a step. `version_1` tells whether the device is of
/// version 1.
fn attach_refusal(error: &AttachError, version_1: bool) -> StepFailure {
    let cause = match error {
        AttachError::Lost(SessionError::Gone { reason: GoneReason::Context }) => cause::host::CONTEXT_LOST,
        AttachError::Lost(SessionError::Gone { reason: GoneReason::Owners }) => cause::host::OWNERS_TAKEN,
        AttachError::Refused(Refusal::NoRoom) if version_1 => cause::host::OWNERS_TAKEN,
        AttachError::NoChannel { .. } => cause::window::NO_CHANNEL,
        AttachError::Lock(_) => Cause::unknown(LinkId::Window),
        AttachError::Open(error) => device::error::cause_of(false, error),
        AttachError::Version { .. } | AttachError::Digest { .. } => cause::device::SPEECH_MISMATCH,
        AttachError::Gone | AttachError::Lost(SessionError::Gone { .. }) => cause::device::HOST_GONE,
        AttachError::Refused(_)
        | AttachError::RefusedStrangely(_)
        | AttachError::Greeting(_)
        | AttachError::Lost(_) => cause::host::SESSION_REFUSED,
        AttachError::Addresses(AddressRefusal::Impossible { .. }) => cause::host::BAD_FACTS,
        AttachError::Addresses(AddressRefusal::Shared { .. }) => cause::host::ADDRESSES_SHARED,
        AttachError::Addresses(AddressRefusal::Taken { .. } | AddressRefusal::Refused { .. }) => {
            cause::host::ADDRESSES_UNAVAILABLE
        }
        AttachError::Strange(_) => Cause::unknown(LinkId::Host),
    };
    let limit = limits::address_space().filter(|limit| explains(*limit, error));
    let limit = limit.map(|bytes| format!("; the limit on address space is {}", size(bytes)));
    broken(cause, error::chain(error) + &limit.unwrap_or_default())
}

/// Returns whether a limit on address space in bytes explains why a device was not attached.
fn explains(limit: u64, error: &AttachError) -> bool {
    let AttachError::Addresses(AddressRefusal::Refused { range, errno }) = error else { return false };
    *errno == libc::ENOMEM && limit < range.bytes
}

fn lost(error: &SessionError) -> StepFailure {
    let cause = match error {
        SessionError::Gone { .. } => cause::device::HOST_GONE,
        _ => cause::host::SESSION_REFUSED,
    };
    broken(cause, error.to_string())
}

/// Measures the round trips of echoes.
fn echo(session: &Session) -> Option<()> {
    begin::<Echoes>(ATTACH);
    let began = Instant::now();
    let mut times = Vec::with_capacity(ECHOES);
    for cookie in 0..ECHOES as u64 {
        let start = Instant::now();
        let mut back = [0; 8];
        let answer = match session.call(Echo { reply: 0, reserved: 0, cookie }, &[], &mut back) {
            Ok(answer) => answer,
            Err(error) => return stop::<Echoes, _>(&lost(&error)),
        };
        times.push(start.elapsed());
        if answer.status != 0 || u64::from_le_bytes(back) != cookie {
            let found = format!(
                "echo {cookie} came back as {} with status {}",
                u64::from_le_bytes(back),
                answer.status
            );
            return stop::<Echoes, _>(&broken(Cause::unknown(LinkId::Host), found));
        }
        if began.elapsed() > ECHO_TIME {
            break;
        }
    }
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    done(&Echoes { count: times.len(), median_us: at(50), p99_us: at(99) });
    Some(())
}

/// Queries the host's device memory and reports it.
fn memory(session: &Session) -> Option<()> {
    begin::<Memory>(USUAL);
    let mut reply = MemInfoReply::new_zeroed();
    match session.call(MemInfo::new_zeroed(), &[], reply.as_mut_bytes()) {
        Ok(answer) if answer.status == 0 => {
            done(&Memory { free: reply.free, total: reply.total });
            Some(())
        }
        Ok(answer) => {
            let found = format!("the host answered the query for free memory with error {}", answer.status);
            stop::<Memory, _>(&broken(Cause::unknown(LinkId::Host), found))
        }
        Err(error) => stop::<Memory, _>(&lost(&error)),
    }
}

/// Measures the speed of writes to window memory and of reads from it.
fn window(session: &Session) -> Option<()> {
    begin::<Window>(USUAL);
    if let Some(pages) = session.payload_pages() {
        done(&Window { version: Some(1), pages: pages.map(u64::from), ..Window::default() });
        return Some(());
    }
    let mut taken = None;
    let mut bytes = STRETCH;
    while taken.is_none() && bytes >= READ_FIRST {
        taken = match session.window_alloc(bytes as u64) {
            Ok(taken) => taken,
            Err(error) => return stop::<Window, _>(&lost(&error)),
        };
        bytes /= 2;
    }
    let (reading, well) = (session.reading(), session.window_reads_well().unwrap_or(true));
    let (page_bytes, why) = reading.map_or((0, String::new()), |it| (it.page_bytes, it.why.to_string()));
    let (polled, pages) = (reading.and_then(|it| it.window_mb_s), reading.and_then(|it| it.pages_mb_s));
    let Some(memory) = taken else {
        done(&Window { page_bytes, why, ..Window::default() });
        return Some(());
    };
    let bytes = (memory.bytes() as usize).min(STRETCH);
    let expected: Vec<u8> = (0..bytes).map(|at| (at * 7 + (at >> 8)) as u8).collect();
    // Not zeros: its pages are there before they are written to.
    let mut own = vec![1; bytes];
    // The first write is slower, because it touches the window's pages for the first time.
    let write = (0..2).map(|_| write(&memory, &expected)).min().unwrap_or_default();
    let (mut read, mut spent) = (0, Duration::ZERO);
    while read < bytes && spent < Duration::from_millis(20) {
        let some = READ_FIRST.min(bytes - read);
        let began = Instant::now();
        // SAFETY: `read` lies within the window memory.
        let from = unsafe { memory.ptr().add(read) };
        // SAFETY: `some` bytes lie there, and in `own`, which overlaps nothing of the window.
        unsafe { std::ptr::copy_nonoverlapping(from, own[read..read + some].as_mut_ptr(), some) };
        spent += began.elapsed();
        read += some;
    }
    let right = own[..read] == expected[..read];
    let speed = |bytes: usize, time: Duration| f64::from(bytes as u32) / time.as_secs_f64().max(1e-9) / 1e6;
    if !right {
        let found = "the window did not return what was written to it";
        return stop::<Window, _>(&broken(Cause::unknown(LinkId::Window), found));
    }
    done(&Window {
        measured: true,
        page_bytes,
        why,
        polled_mb_s: polled,
        pages_mb_s: pages,
        reads_well: Some(well),
        bytes: Some(bytes as u64),
        write_mb_s: speed(bytes, write),
        read_mb_s: speed(read, spent),
        ..Window::default()
    });
    Some(())
}

/// Writes `bytes` to window memory and returns the duration.
fn write(memory: &WindowMemory, bytes: &[u8]) -> Duration {
    let began = Instant::now();
    // SAFETY: the window memory is as long as was asked for, the bytes' length at least, and the two do not
    // overlap.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.ptr(), bytes.len()) };
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    began.elapsed()
}

/// Returns the caching mode of the window's mapping.
fn kind(function: &PciFunction) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let simulated = std::fs::metadata(function.dir.join("resource0"))
        .is_ok_and(|metadata| metadata.file_type().is_socket());
    match (simulated, function.dir.join("resource2_wc").exists()) {
        (true, _) => "memory",
        (false, true) => "write-combined",
        (false, false) => "uncached",
    }
}

fn told(facts: &DeviceFacts) -> Facts {
    let addresses = facts.addresses();
    let attribute = |id: usize| facts.attributes.get(id).copied().unwrap_or_default();
    Facts {
        name: text(&facts.name),
        driver: text(&facts.driver_text),
        uuid: uuid(&facts.uuid),
        total: facts.total_bytes,
        cuda: facts.driver_version,
        cc_major: facts.cc_major,
        cc_minor: facts.cc_minor,
        abilities: facts.abilities,
        // CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, _WARP_SIZE, _MULTIPROCESSOR_COUNT
        threads: attribute(1),
        warp: attribute(10),
        processors: attribute(16),
        address_base: addresses.map_or(0, |range| range.base),
        address_bytes: addresses.map_or(0, |range| range.bytes),
    }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use vgpu_wire::AddressRange;

    use super::*;

    #[test]
    fn a_limit_is_told_where_it_is_why_addresses_are_refused() {
        let range = AddressRange { base: 1 << 40, bytes: 1 << 40 };
        let refused = |errno| AttachError::Addresses(AddressRefusal::Refused { range, errno });
        assert!(explains(1 << 39, &refused(libc::ENOMEM)));
        assert!(!explains(1 << 41, &refused(libc::ENOMEM)), "there is room under it");
        assert!(!explains(1 << 39, &refused(libc::EPERM)));
        let taken = AttachError::Addresses(AddressRefusal::Taken { range, mapping: None });
        assert!(!explains(1 << 39, &taken));
    }
}
