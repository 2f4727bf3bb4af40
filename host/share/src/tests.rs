//! Claims of several devices, in this process and in others.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;

const GIB: u64 = 1 << 30;
const MEMORY: GpuMemory = GpuMemory { bytes: 6 * GIB, reserve: GIB / 2 };

fn uuid() -> GpuUuid {
    "GPU-00112233-4455-6677-8899-aabbccddeeff".parse().unwrap()
}

fn claim(name: &str, promised: u64) -> Claim<'_> {
    Claim {
        name,
        promised: Some(promised),
        overhead: 0,
        context_bytes: 0,
        weight: 1,
        memory: MEMORY,
        patience: Duration::ZERO,
    }
}

/// Returns a GPU's file, as another process sees it too that opens the directory.
fn open(folder: &Path) -> GpuShare {
    Gpus::open(&folder.join("gpus")).unwrap().gpu(uuid()).unwrap()
}

/// Ends a device. A process that another test starts at this moment has duplicates of its descriptors until
/// it executes its program.
fn end_device(share: &GpuShare, slot: Slot) {
    let index = slot.seen().index();
    drop(slot);
    while matches!(share.locked_part(index).unwrap(), Some(lock::LockRange::Device)) {
        std::thread::yield_now();
    }
}

#[test]
fn a_node_process_that_ends_leaves_no_lock_to_a_child_that_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(folder.path()), open(folder.path()));
    let lock = one.lock_for_node().unwrap().unwrap();
    assert!(other.lock_for_node().unwrap().is_none() && other.has_node().unwrap());
    let _childs = lock.0.try_clone().unwrap();
    drop(lock);
    assert!(!other.has_node().unwrap() && other.lock_for_node().unwrap().is_some());
}

#[test]
fn a_slot_is_taken_over_with_its_lock_and_figures() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(folder.path()), open(folder.path()));
    let (slot, second) = (one.claim(&claim("vm1", GIB)).unwrap(), one.claim(&claim("vm2", GIB)).unwrap());
    slot.figure(Figure::Launches).store(7, Ordering::Relaxed);
    let lock = || slot.lock().try_clone_to_owned().unwrap();
    assert!(Slot::adopt(&other, 1, lock()).is_err(), "the lock is another slot's");
    assert!(Slot::adopt(&other, SLOTS, lock()).is_err());
    let kept = lock();
    drop(slot);
    assert_eq!(one.holders().unwrap().len(), 2);
    let slot = Slot::adopt(&other, 0, kept).unwrap();
    assert_eq!(slot.figure(Figure::Launches).load(Ordering::Relaxed), 7);
    assert_eq!((slot.seen().name(), slot.seen().is_taken().unwrap()), ("vm1".to_owned(), true));
    end_device(&one, slot);
    assert_eq!(one.holders().unwrap().len(), 1);
    end_device(&one, second);
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
    let names: Vec<_> = other.holders().unwrap().iter().map(SlotView::name).collect();
    assert_eq!(names, ["vm1", "vm2", "vm3"]);
    end_device(&one, second);
    assert_eq!(one.holders().unwrap().len(), 2);
    // The slot is used again, and has nothing of its former device.
    let again = other.claim(&claim("vm4", 2 * GIB)).unwrap();
    assert_eq!((again.seen().index(), again.figure(Figure::Overhead).load(Ordering::Relaxed)), (1, 0));
    for slot in [first, third, again] {
        end_device(&one, slot);
    }
    let all = one.claim(&Claim { promised: None, overhead: GIB, ..claim("vm1", 0) }).unwrap();
    assert_eq!(all.figure(Figure::Promised).load(Ordering::Relaxed), 5 * GIB - GIB / 2);
    let none = Claim { promised: None, context_bytes: 300 << 20, ..claim("vm2", 0) };
    let none = one.claim(&none).unwrap_err().to_string();
    assert!(
        none.ends_with(
            "cannot promise 300 MiB: of 5632 MiB for VMs 0 MiB are free, because vm1 holds 5632 MiB"
        )
    );
    end_device(&one, all);
    let alone = one.claim(&claim("vm1", 6 * GIB)).unwrap_err().to_string();
    assert!(alone.ends_with("cannot promise 6144 MiB: of 5632 MiB for VMs 5632 MiB are free"), "{alone}");
}

/// A worker that has nothing but its lock. It reads until it is killed.
fn worker(slot: &Slot) -> Child {
    let lock = slot.worker_lock().unwrap();
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(lock).spawn().unwrap()
}

fn end(worker: &mut Child) {
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn a_slot_is_held_until_the_last_worker_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let share = open(folder.path());
    let slot = share.claim(&claim("vm1", 5 * GIB)).unwrap();
    let mut workers = [worker(&slot), worker(&slot)];
    assert!(share.holders().unwrap()[0].device_lives());
    end_device(&share, slot);
    let left = share.holders().unwrap();
    assert!(left.len() == 1 && !left[0].device_lives(), "workers hold it");
    let error = share.claim(&claim("vm2", GIB)).unwrap_err().to_string();
    assert!(error.ends_with("because the ended device of vm1 holds 5120 MiB"), "{error}");
    end(&mut workers[0]);
    assert_eq!(share.holders().unwrap().len(), 1, "one worker holds it");
    end(&mut workers[1]);
    assert!(share.holders().unwrap().is_empty());
    share.claim(&claim("vm2", 5 * GIB)).unwrap();
}

#[test]
fn a_device_that_starts_again_waits_for_its_former_workers() {
    let folder = tempfile::tempdir().unwrap();
    let share = open(folder.path());
    let slot = share.claim(&claim("vm1", 5 * GIB)).unwrap();
    let mut worker = worker(&slot);
    assert!(matches!(share.claim(&claim("vm1", GIB)), Err(ShareError::Name { .. })), "its device lives");
    end_device(&share, slot);
    assert!(matches!(share.claim(&claim("vm1", GIB)), Err(ShareError::Left { .. })));
    let patience = Duration::from_mins(1);
    std::thread::scope(|scope| {
        let waits = |name| Claim { patience, ..claim(name, 2 * GIB) };
        let (same, other) = (waits("vm1"), waits("vm2"));
        let path = folder.path();
        let again = [same, other].map(|claim| scope.spawn(move || open(path).claim(&claim).unwrap()));
        // Neither is refused while the worker lives.
        std::thread::sleep(Duration::from_millis(300));
        assert!(again.iter().all(|claim| !claim.is_finished()));
        end(&mut worker);
        let slots = again.map(|claim| claim.join().unwrap());
        assert_eq!(share.holders().unwrap().len(), slots.len());
    });
}

#[test]
fn a_worker_that_drops_its_lock_frees_neither_a_slot_nor_the_lock_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let share = open(folder.path());
    let slot = share.claim(&claim("vm1", GIB)).unwrap();
    let workers = [(); 2].map(|()| std::fs::File::from(slot.worker_lock().unwrap()));
    let drops = |worker| lock::set(worker, lock::LockRange::All, lock::Kind::None).unwrap();
    assert!(drops(&workers[0]));
    assert_eq!(share.claim(&claim("vm2", GIB)).unwrap().seen().index(), 1);
    assert!(workers[0].set_len(1).is_err(), "a worker cannot write");
    end_device(&share, slot);
    assert_eq!(share.holders().unwrap().len(), 1, "the other worker holds it");
    assert!(drops(&workers[1]) && share.holders().unwrap().is_empty());
}

#[test]
fn the_reserve_is_the_largest_of_the_devices_that_run() {
    let folder = tempfile::tempdir().unwrap();
    let share = open(folder.path());
    let reserving =
        |name, gib| Claim { memory: GpuMemory { reserve: gib * GIB, ..MEMORY }, ..claim(name, GIB) };
    let _first = share.claim(&reserving("vm1", 1)).unwrap();
    let second = share.claim(&reserving("vm2", 3)).unwrap();
    assert_eq!(largest_reserve(&share.holders().unwrap()), 3 * GIB);
    let more = Claim { promised: Some(2 * GIB), ..reserving("vm3", 0) };
    assert!(matches!(share.claim(&more), Err(ShareError::Promise(_))), "1 GiB is free");
    end_device(&share, second);
    assert_eq!(largest_reserve(&share.holders().unwrap()), GIB);
    share.claim(&more).unwrap();
}

#[test]
fn a_promise_suffices_for_a_context() {
    let folder = tempfile::tempdir().unwrap();
    let share = open(folder.path());
    let known = Claim { context_bytes: 300 << 20, ..claim("vm1", 200 << 20) };
    let error = share.claim(&known).unwrap_err().to_string();
    assert!(error.contains("a VM with 200 MiB of GPU-") && error.contains("takes 300 MiB"), "{error}");
    // What a context costs is measured when the slot is taken, with an overhead until then.
    let slot = share.claim(&Claim { overhead: GIB, ..claim("vm1", 200 << 20) }).unwrap();
    assert!(matches!(slot.set_context_bytes(300 << 20), Err(ShareError::TooLittle { .. })));
    assert_eq!(slot.seen().held_bytes(), GIB + (200 << 20));
    slot.set_context_bytes(200 << 20).unwrap();
    assert_eq!(slot.seen().held_bytes(), 200 << 20);
    assert_eq!(slot.seen().figure(Figure::ContextBytes), 200 << 20);
}

#[test]
fn nothing_is_promised_beside_a_device_whose_record_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let slot = open(folder.path()).claim(&claim("vm1", 5 * GIB)).unwrap();
    std::fs::remove_file(folder.path().join("gpus").join(uuid().to_string())).unwrap();
    let share = open(folder.path());
    let error = share.claim(&claim("vm2", GIB)).unwrap_err().to_string();
    assert!(error.contains("a device holds slot 0 of ") && error.contains("was removed"), "{error}");
    end_device(&share, slot);
    share.claim(&claim("vm2", GIB)).unwrap();
}

#[test]
fn one_process_at_a_time_measures() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(folder.path()), open(folder.path()));
    let turn = one.lock_measurement(Duration::ZERO).unwrap();
    assert!(turn.is_some() && other.lock_measurement(Duration::ZERO).unwrap().is_none());
    drop(turn);
    // A process that another test starts at this moment has a duplicate until it executes its program.
    assert!(other.lock_measurement(Duration::from_mins(1)).unwrap().is_some());
}

#[test]
fn a_look_makes_nothing_and_disturbs_no_claim() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpus");
    assert!(Gpus::existing(&path).unwrap().is_none() && !path.exists());
    let share = open(folder.path());
    let gpus = Gpus::existing(&path).unwrap().unwrap();
    share
        .exclusively(|| {
            // Neither waits for the claim.
            gpus.existing_gpu(uuid())?.holders()?;
            open(folder.path()).holders()
        })
        .unwrap();
    let other = GpuUuid([7; 16]);
    assert!(matches!(gpus.existing_gpu(other), Err(ShareError::File { .. })));
    assert_eq!(gpus.all().unwrap(), [uuid()]);
}

/// The program of the process that [`a_killed_device_holds_nothing`] kills: this test, with a directory in
/// the environment.
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
    for (stated, weight) in [(0, 1), (7, 7), (1000, 1000), (u64::MAX, 1000)] {
        liar.figure(Figure::Weight).store(stated, Ordering::Relaxed);
        assert_eq!((liar.seen().weight(), sum_of_weights(&share.holders().unwrap())), (weight, weight));
    }
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
