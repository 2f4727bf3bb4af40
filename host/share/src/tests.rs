//! Claims of several devices, in this process and in others.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use super::*;

const GIB: u64 = 1 << 30;
const MEMORY: GpuMemory = GpuMemory { bytes: 6 * GIB, reserve: GIB / 2 };

fn uuid() -> GpuUuid {
    "GPU-00112233-4455-6677-8899-aabbccddeeff".parse().unwrap()
}

fn claim(name: &str, promised: u64) -> Claim<'_> {
    Claim { name, promised: Some(promised), overhead: 0, context_bytes: 300 << 20, weight: 1, memory: MEMORY }
}

/// Returns a GPU's file, as another process sees it too that opens the directory.
fn open(folder: &Path) -> GpuShare {
    Gpus::open(&folder.join("gpus")).unwrap().gpu(uuid()).unwrap()
}

#[test]
fn a_promise_too_many_is_refused_with_the_names_of_the_holders() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(folder.path()), open(folder.path()));
    let first = one.claim(&claim("vm1", 2 * GIB)).unwrap();
    let second = other.claim(&Claim { overhead: GIB / 2, ..claim("vm2", 2 * GIB) }).unwrap();
    let error = open(folder.path()).claim(&claim("vm3", GIB + 1)).unwrap_err().to_string();
    assert_eq!(
        error,
        "GPU-00112233-4455-6677-8899-aabbccddeeff cannot promise 1025 MiB: of 5632 MiB for VMs 1024 MiB are \
         free, because vm1 holds 2048 MiB and vm2 2560 MiB"
    );
    let third = one.claim(&claim("vm3", GIB)).unwrap();
    let names: Vec<_> = other.holders().unwrap().iter().map(Holder::name).collect();
    assert_eq!(names, ["vm1", "vm2", "vm3"]);
    drop(second);
    assert_eq!(one.holders().unwrap().len(), 2);
    // The slot is used again, and has nothing of its former device.
    let again = other.claim(&claim("vm4", 2 * GIB)).unwrap();
    assert_eq!((again.seen().index(), again.figure(Figure::Overhead).load(Ordering::Relaxed)), (1, 0));
    drop((first, third, again));
    let all = one.claim(&Claim { promised: None, overhead: GIB, ..claim("vm1", 0) }).unwrap();
    assert_eq!(all.figure(Figure::Promised).load(Ordering::Relaxed), 5 * GIB - GIB / 2);
    let none = one.claim(&Claim { promised: None, ..claim("vm2", 0) }).unwrap_err().to_string();
    assert!(
        none.ends_with(
            "cannot promise 300 MiB: of 5632 MiB for VMs 0 MiB are free, because vm1 holds 5632 MiB"
        )
    );
    drop(all);
    let alone = one.claim(&claim("vm1", 6 * GIB)).unwrap_err().to_string();
    assert!(alone.ends_with("cannot promise 6144 MiB: of 5632 MiB for VMs 5632 MiB are free"), "{alone}");
}

#[test]
fn a_slot_is_held_until_the_last_worker_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let share = open(folder.path());
    let slot = share.claim(&claim("vm1", 5 * GIB)).unwrap();
    // A worker that has nothing but the descriptor. It writes a line when it runs, and reads until its end.
    let worker = || {
        let lock = slot.workers_lock().try_clone_to_owned().unwrap();
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(lock).spawn().unwrap()
    };
    let mut workers = [worker(), worker()];
    drop(slot);
    assert_eq!(share.holders().unwrap().len(), 1, "workers hold it");
    assert!(matches!(share.claim(&claim("vm2", GIB)), Err(ShareError::Promise(_))));
    workers[0].kill().unwrap();
    workers[0].wait().unwrap();
    assert_eq!(share.holders().unwrap().len(), 1, "one worker holds it");
    workers[1].kill().unwrap();
    workers[1].wait().unwrap();
    assert!(share.holders().unwrap().is_empty());
    share.claim(&claim("vm2", 5 * GIB)).unwrap();
}

#[test]
fn a_worker_that_drops_its_lock_does_not_free_the_slot_of_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let share = open(folder.path());
    let slot = share.claim(&claim("vm1", GIB)).unwrap();
    let worker = std::fs::File::from(slot.workers_lock().try_clone_to_owned().unwrap());
    assert!(lock::set(&worker, lock::Kind::None).unwrap());
    assert_eq!(share.claim(&claim("vm2", GIB)).unwrap().seen().index(), 1);
    assert!(worker.set_len(1).is_err(), "a worker cannot write");
}

/// The program of the process that [`a_killed_device_holds_nothing`] kills: this test, with a directory in the
/// environment.
#[test]
fn claims_and_waits_for_its_end() {
    let Some(folder) = std::env::var_os("VGPU_SHARE_TEST") else { return };
    let _slot = open(folder.as_ref()).claim(&claim("vm1", 5 * GIB)).unwrap();
    println!("\nclaimed");
    std::io::stdin().lines().for_each(drop);
}

#[test]
fn a_killed_device_holds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut device = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::claims_and_waits_for_its_end", "--nocapture"])
        .env("VGPU_SHARE_TEST", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(device.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "claimed"));
    let share = open(folder.path());
    let error = share.claim(&claim("vm1", GIB)).unwrap_err();
    assert!(
        matches!(error, ShareError::Name { process, .. } if process == u64::from(device.id())),
        "{error}"
    );
    device.kill().unwrap();
    device.wait().unwrap();
    assert!(share.holders().unwrap().is_empty());
    share.claim(&claim("vm1", 5 * GIB)).unwrap();
}

#[test]
fn devices_that_claim_at_once_are_not_promised_the_same_memory() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..16).map(|number| format!("vm{number}")).collect();
    let claimed: Vec<_> = std::thread::scope(|scope| {
        let claim = |name| open(folder.path()).claim(&claim(name, GIB));
        let threads: Vec<_> = names.iter().map(|name| scope.spawn(move || claim(name))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(claimed.iter().filter(|claim| claim.is_ok()).count(), 5);
    let refused = |claim: &Result<Slot, ShareError>| matches!(claim, Err(ShareError::Promise(_)));
    assert_eq!(claimed.iter().filter(|claim| refused(claim)).count(), 11);
}

#[test]
fn what_a_device_writes_can_mislead_only_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let share = open(folder.path());
    let liar = share.claim(&claim("vm1", GIB)).unwrap();
    liar.figure(Figure::Promised).store(u64::MAX, Ordering::Relaxed);
    liar.figure(Figure::Overhead).store(u64::MAX, Ordering::Relaxed);
    assert_eq!(liar.seen().held_bytes(), 6 * GIB);
    share
        .u64_at(GpuShare::slot_offset(0) + layout::NAME)
        .store(u64::from_le_bytes(*b"a b\n\xffcde"), Ordering::Relaxed);
    assert_eq!(liar.seen().name(), "a\u{fffd}b\u{fffd}\u{fffd}cde");
    for name in ["", "a b", "a\n", &"x".repeat(65)] {
        assert!(matches!(share.claim(&claim(name, 1)), Err(ShareError::Unnameable(_))), "{name:?}");
    }
    let other = Claim { memory: GpuMemory { bytes: 5 * GIB, ..MEMORY }, ..claim("vm2", 1) };
    assert!(matches!(share.claim(&other), Err(ShareError::Disagree { .. })));
}

#[test]
fn a_gpu_has_a_limited_number_of_vms() {
    let folder = tempfile::tempdir().unwrap();
    let share = open(folder.path());
    let slots: Vec<Slot> =
        (0..SLOTS).map(|number| share.claim(&claim(&format!("vm{number}"), 1)).unwrap()).collect();
    assert!(matches!(share.claim(&claim("more", 1)), Err(ShareError::Full(_))));
    for (index, slot) in slots.iter().enumerate() {
        slot.seen().arbiter_word(127).store(index as u64, Ordering::Relaxed);
        share.node_word(0).fetch_add(1, Ordering::Relaxed);
    }
    let other = open(folder.path());
    let words =
        other.holders().unwrap().iter().map(|one| one.arbiter_half(127).load(Ordering::Relaxed)).sum::<u32>();
    assert_eq!((words, other.node_word(0).load(Ordering::Relaxed)), (63 * 32, 64));
    drop(slots);
    assert_eq!(share.claim(&claim("vm", 1)).unwrap().seen().arbiter_word(127).load(Ordering::Relaxed), 0);
}

#[test]
fn files_that_are_not_of_this_release_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let gpus = Gpus::open(&folder.path().join("gpus")).unwrap();
    let share = gpus.gpu(uuid()).unwrap();
    let _slot = share.claim(&claim("vm1", 1)).unwrap();
    assert_eq!(gpus.all().unwrap(), [uuid()]);
    share.u64_at(layout::header::VERSION).store(2, Ordering::Relaxed);
    let error = gpus.gpu(uuid()).unwrap_err().to_string();
    assert!(error.contains("is of version 2, and this release has version 1"), "{error}");
    share.u64_at(layout::header::VERSION).store(1, Ordering::Relaxed);
    share.u64_at(layout::header::UUID).store(7, Ordering::Relaxed);
    let error = gpus.gpu(uuid()).unwrap_err().to_string();
    assert!(error.contains("is the file of another GPU"), "{error}");
    let other = GpuUuid([7; 16]);
    std::fs::write(gpus.path().join(other.to_string()), "short").unwrap();
    std::fs::set_permissions(gpus.path().join(other.to_string()), Permissions::from_mode(0o600)).unwrap();
    for content in [b"short".to_vec(), vec![b'x'; layout::FILE_BYTES], vec![0; layout::FILE_BYTES + 1]] {
        std::fs::write(gpus.path().join(other.to_string()), content).unwrap();
        assert!(matches!(gpus.gpu(other), Err(ShareError::Format { .. })));
    }
    // Its maker was killed before it wrote the header.
    std::fs::write(gpus.path().join(other.to_string()), vec![0; layout::FILE_BYTES]).unwrap();
    gpus.gpu(other).unwrap().claim(&claim("vm1", 1)).unwrap();
}
