//! Tests of ownership: processes, machines, connections, cleanups, limits, and the effect of one owner's
//! fault on others.

use std::sync::Arc;

use vgpu_device_v1::{Mediator, MediatorRules, Properties};
use vgpu_wire::v1::call::{
    ALLOCATIONS_MAX, CUBLAS_MAX, FUNCTIONS_MAX, LIBRARIES_MAX, MODULES_MAX, OWNERS_MAX, Op,
};
use vgpu_wire::v1::payload::LAUNCH_RAW;
use vgpu_wire::v1::{PAYLOAD_MAX, split};
use zerocopy::IntoBytes;

use crate::code::{PTX, launch};
use crate::driver::{Guest, guest, null, pattern, soft, wide, with};

fn cleanup(guest: &mut Guest) {
    let token = guest.token;
    guest.call(Op::ProcessCleanup, &[token], &[]).nothing();
}

fn used(mediator: &Mediator) -> u64 {
    mediator.memory().1
}

fn machine(mediator: &Arc<Mediator>, vm_id: u32) -> Guest {
    with(mediator, Properties { vm_id, ..Properties::default() })
}

#[test]
fn a_cleanup_frees_all_if_there_was_a_context() {
    let mediator = Mediator::new(soft(), MediatorRules::default()).unwrap();
    let mut guest = machine(&mediator, 3);
    guest.call(Op::PrimaryCtxRetain, &[0, 0], &[]).one();
    let address = guest.alloc(1 << 20);
    let module = guest.load(PTX.as_bytes());
    let stream = guest.call(Op::StreamCreate, &[0], &[]).one();
    assert!(used(&mediator) > 1 << 20);
    cleanup(&mut guest);
    assert_eq!((used(&mediator), mediator.owners().len()), (0, 0));
    assert_eq!(guest.put(address, &[1]).failed(), 1);
    assert_eq!(guest.call(Op::ModuleGetFunction, &wide(&[module]), b"scale\0").failed(), 1);
    assert_eq!(guest.call(Op::StreamDestroy, &wide(&[stream]), &[]).failed(), 400);
    // The cleanup of an unknown owner succeeds without creating one.
    cleanup(&mut guest.process(777));
    assert!(mediator.owners().iter().all(|owner| owner.process != 777));
}

#[test]
fn a_cleanup_without_a_context_leaves_memory_behind() {
    let mediator = Mediator::new(soft(), MediatorRules::default()).unwrap();
    let mut guest = machine(&mediator, 3);
    guest.call(Op::Init, &[0], &[]).one();
    guest.alloc(1 << 20);
    guest.call(Op::CublasCreate, &[], &[]).ok();
    cleanup(&mut guest);
    assert_eq!(used(&mediator), 1 << 20, "Q11");
    // The next process with the same number inherits the objects (Q12), and frees them by a cleanup.
    guest.call(Op::PrimaryCtxRetain, &[0, 0], &[]).one();
    cleanup(&mut guest);
    assert_eq!(used(&mediator), 0);
}

#[test]
fn the_token_is_who_is_cleaned_up() {
    let mediator = Mediator::new(null(), MediatorRules::default()).unwrap();
    let mut one = machine(&mediator, 3);
    let mut two = one.process(2);
    for guest in [&mut one, &mut two] {
        guest.call(Op::PrimaryCtxRetain, &[0, 0], &[]).one();
        guest.alloc(4096);
    }
    let token = two.token;
    one.call(Op::ProcessCleanup, &[token], &[]).nothing();
    let left: Vec<u32> = mediator.owners().iter().map(|owner| owner.process).collect();
    assert_eq!(left, [2], "by the register, not by the argument");
}

#[test]
fn nobody_reaches_what_another_owns() {
    let mediator = Mediator::new(soft(), MediatorRules::default()).unwrap();
    let mut one = machine(&mediator, 1);
    // Machines 1 and 257 have the same low byte, and processes the same number.
    let mut others = [one.process(2), machine(&mediator, 257), machine(&mediator, 2)];
    let address = one.alloc(4096);
    one.put(address, &pattern(1, 4096)).nothing();
    let module = one.load(PTX.as_bytes());
    let function = one.function(module, "scale");
    let stream = one.call(Op::StreamCreate, &[0], &[]).one();
    let event = one.call(Op::EventCreate, &[0], &[]).one();
    let handle = one.call(Op::CublasCreate, &[], &[]).ok()[1];
    for other in &mut others {
        assert_eq!(other.put(address, &[1]).failed(), 1, "Q22");
        let read = other.call(Op::MemcpyDtoH, &wide(&[address, 16]), &[]);
        assert_eq!((read.data_len, read.failed()), (0, 1));
        other.call(Op::MemFree, &split(address), &[]).nothing();
        assert_eq!(other.call(Op::ModuleGetFunction, &wide(&[module]), b"scale\0").failed(), 1);
        let params = [address.as_bytes(), 1_u32.as_bytes(), 1_u32.as_bytes()].concat();
        let run = other.call(Op::LaunchKernel, &[], &launch(function, LAUNCH_RAW, 3, &params));
        assert_eq!(run.failed(), 400, "Q16");
        assert_eq!(other.call(Op::StreamDestroy, &wide(&[stream]), &[]).failed(), 400);
        assert_eq!(other.call(Op::EventQuery, &wide(&[event]), &[]).failed(), 400);
        assert_eq!(other.call(Op::CublasDestroy, &wide(&[handle]), &[]).ok(), [1]);
        // The address of its own memory may be the same, but the memory is another.
        let own = other.alloc(4096);
        assert_eq!(other.get(own, 4096), [0; 4096]);
        other.put(own, &[0xff; 4096]).nothing();
    }
    assert_eq!(one.get(address, 4096), pattern(1, 4096));
}

#[test]
fn a_fault_costs_its_owner_alone() {
    let mediator = Mediator::new(soft(), MediatorRules::default()).unwrap();
    let mut one = machine(&mediator, 1);
    let mut two = one.process(2);
    let kept = two.alloc(4096);
    two.put(kept, &pattern(5, 4096)).nothing();
    let module = one.load(PTX.as_bytes());
    let function = one.function(module, "scale");
    let address = one.alloc(4096);
    let params = [0xdead_0000_u64.as_bytes(), 1_u32.as_bytes(), 1_u32.as_bytes()].concat();
    let run = one.call(Op::LaunchKernel, &[], &launch(function, LAUNCH_RAW, 3, &params));
    assert_eq!(run.failed(), 700);
    assert_eq!(one.put(address, &[1]).failed(), 1, "Q17: nothing of it is there any more");
    assert_eq!(one.call(Op::CtxGetCurrent, &[], &[]).one(), 0);
    assert_eq!(used(&mediator), 4096);
    let module = one.load(PTX.as_bytes());
    one.function(module, "scale");
    assert_eq!(two.get(kept, 4096), pattern(5, 4096));
}

#[test]
fn owners_without_a_token_end_with_their_connection() {
    let mediator = Mediator::new(soft(), MediatorRules::default()).unwrap();
    let mut one = machine(&mediator, 10);
    let mut two = machine(&mediator, 10);
    one.token = 0;
    two.token = 0;
    let address = one.alloc(4096);
    assert_eq!(two.put(address, &[1]).failed(), 1, "each connection is its own");
    let mut named = one.process(5);
    named.alloc(8192);
    drop((one, named));
    let left: Vec<(u32, u64)> =
        mediator.owners().iter().map(|owner| (owner.process, owner.allocated)).collect();
    assert_eq!(left, [(0, 0), (5, 8192)], "what has a token stays (Q12)");
}

#[test]
fn the_65th_owner_gets_nothing() {
    let mediator = Mediator::new(null(), MediatorRules::default()).unwrap();
    let guest = machine(&mediator, 1);
    for token in 1..=OWNERS_MAX as u32 {
        guest.process(token).call(Op::Init, &[], &[]).one();
    }
    let mut late = guest.process(1000);
    for op in
        [Op::Init, Op::GetGpuInfo, Op::MemAlloc, Op::DeviceGetName, Op::CublasCreate, Op::MemAllocManaged]
    {
        assert_eq!(late.call(op, &[1, 0], &[]).failed(), 2, "{}", op.name());
    }
    cleanup(&mut guest.process(17));
    late.call(Op::Init, &[], &[]).one();
    assert_eq!(guest.process(17).call(Op::Init, &[], &[]).failed(), 2);
}

/// The mediator admits a limited number of owners of all machines together: 16 times the limit of a machine.
#[test]
fn owners_of_all_machines_have_an_end() {
    const MACHINES: u32 = 16;
    let mediator = Mediator::new(null(), MediatorRules::default()).unwrap();
    let machines: Vec<Guest> = (1..=MACHINES).map(|vm| machine(&mediator, vm)).collect();
    for machine in &machines {
        for token in 1..=OWNERS_MAX as u32 {
            machine.process(token).call(Op::Init, &[], &[]).one();
        }
    }
    let mut one_more = machine(&mediator, MACHINES + 1).process(1);
    assert_eq!(one_more.call(Op::Init, &[], &[]).failed(), 2);
    cleanup(&mut machines[3].process(9));
    one_more.call(Op::Init, &[], &[]).one();
}

/// A full table of cuBLAS handles is reported as `CUBLAS_STATUS_ALLOC_FAILED`, in a call that succeeds.
#[test]
fn the_table_of_cublas_handles_has_an_end() {
    const ALLOC_FAILED: u64 = 3;
    let mut guest = guest(soft());
    let made: Vec<Vec<u64>> = (0..CUBLAS_MAX).map(|_| guest.call(Op::CublasCreate, &[], &[]).ok()).collect();
    assert!(made.iter().all(|results| results.len() == 2 && results[0] == 0), "{made:?}");
    assert_eq!(guest.call(Op::CublasCreate, &[], &[]).ok(), [ALLOC_FAILED]);
    assert_eq!(guest.call(Op::CublasDestroy, &wide(&[made[7][1]]), &[]).ok(), [0]);
    let again = guest.call(Op::CublasCreate, &[], &[]).ok();
    assert!(again.len() == 2 && !made.contains(&again), "{again:?}: no handle is used again");
}

#[test]
fn the_table_of_allocations_has_an_end() {
    let mut guest = guest(null());
    let first = guest.alloc(256);
    for _ in 1..ALLOCATIONS_MAX {
        guest.alloc(256);
    }
    assert_eq!(guest.call(Op::MemAlloc, &[256, 0, 0, 0], &[]).failed(), 2, "Q21");
    guest.free(first);
    guest.alloc(256);
}

#[test]
fn tables_of_code_have_an_end() {
    let mut guest = guest(null());
    let text = b".version 7.0\n.target sm_50\n.address_size 64\n";
    let modules: Vec<u64> = (0..MODULES_MAX).map(|_| guest.load(text)).collect();
    assert_eq!(guest.call(Op::ModuleLoadData, &[], text).failed(), 2);
    for _ in 0..LIBRARIES_MAX {
        guest.call(Op::LibraryLoadData, &[], text).one();
    }
    assert_eq!(guest.call(Op::LibraryLoadData, &[], text).failed(), 2);
    for index in 0..FUNCTIONS_MAX {
        guest.function(modules[index % 7], &format!("k{index}"));
    }
    assert_eq!(guest.call(Op::ModuleGetFunction, &wide(&[modules[9]]), b"one more\0").failed(), 2);
    guest.function(modules[0], "k0");
    guest.call(Op::ModuleUnload, &wide(&[modules[0]]), &[]).nothing();
    guest.load(text);
    guest.function(modules[9], "one more");
}

#[test]
fn who_is_turned_away_is_told_so_and_is_taken_again_later() {
    let mediator = Mediator::new(null(), MediatorRules::default()).unwrap();
    let mut guest = machine(&mediator, 5);
    let address = guest.alloc(256);
    for (rules, error) in [(MediatorRules::new(Some(0), []), 0x0a), (MediatorRules::new(None, [5]), 0x0b)] {
        mediator.set_rules(rules);
        // The first call of a machine is never above the rate.
        guest.call(Op::Init, &[], &[]);
        let done = guest.call(Op::Init, &[], &[]);
        assert_eq!((done.status, done.error, done.code), (3, error, 0));
    }
    mediator.set_rules(MediatorRules::default());
    guest.call(Op::Init, &[], &[]).one();
    guest.put(address, &[1]).nothing();
}

#[test]
fn lengths_at_their_limits() {
    let mut guest = guest(soft());
    let most = PAYLOAD_MAX as usize;
    let address = guest.alloc(2 * most as u64);
    let data = pattern(1, most);
    guest.put(address, &data).nothing();
    let done = guest.call(Op::MemcpyDtoH, &wide(&[address, most as u64]), &[]);
    assert_eq!(done.data_len, PAYLOAD_MAX);
    done.ok();
    assert!(guest.bar1(0x80_0000, PAYLOAD_MAX - 8) == data[..most - 8]);
    let done = guest.call(Op::MemcpyDtoH, &wide(&[address, most as u64 + 1]), &[]);
    assert_eq!((done.data_len, done.ok().len()), (0, 0), "Q14: success, and nothing");
    // If the stated length differs from the sent one, the smaller counts.
    guest.put(address, &[0; 64]).nothing();
    guest.call(Op::MemcpyHtoD, &wide(&[address, 2]), &[7; 8]).nothing();
    guest.call(Op::MemcpyHtoD, &wide(&[address + 8, 1 << 40]), &[8; 4]).nothing();
    assert_eq!(guest.get(address, 16), [7, 7, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 0, 0, 0, 0]);
    assert_eq!(guest.call(Op::MemAlloc, &[0, 0, 0, 0], &[]).failed(), 1);
    assert_eq!(guest.call(Op::MemAlloc, &wide(&[u64::MAX, 0]), &[]).failed(), 2);
    assert_eq!(guest.call(Op::MemcpyDtoH, &wide(&[u64::MAX, 16]), &[]).failed(), 1);
    // A payload that is cut off makes the mediator hang up (Q7), and the next call works again.
    assert_eq!(guest.register(0, 64 << 10), 2);
    guest.submit(Op::LaunchKernel as u32, &[], 40_000);
    let done = guest.wait();
    assert_eq!((done.status, done.error), (3, 3));
    guest.call(Op::Init, &[], &[]).one();
}
