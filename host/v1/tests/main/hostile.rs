//! Tests with guests and devices that send arbitrary bytes: nothing panics, nothing hangs, and the objects of
//! other owners stay unchanged.

use proptest::prelude::*;
use vgpu_device_v1::{Bar, Connection, Mediator, MediatorRules, Properties, Verdict};
use vgpu_host_testing::guest::PATIENCE;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::frame::{CUDA_CALL, Call, Header, MAGIC};
use vgpu_wire::v1::{ARGS, owner};
use zerocopy::FromZeros;

use crate::code::PTX;
use crate::driver::{Guest, RAM, null, pattern, soft, with};

/// Returns a strategy for arguments, in which numbers that are known to be meaningful are more likely.
fn argument(known: &[u64]) -> impl Strategy<Value = u32> + use<> {
    let halves: Vec<u32> = known.iter().flat_map(|&value| [value as u32, (value >> 32) as u32]).collect();
    prop_oneof![
        4 => prop::sample::select(halves),
        3 => prop::sample::select(vec![0, 1, 2, 3, 4, 7, 16, 64, 1024, 4096]),
        1 => any::<u32>(),
    ]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..300),
        1 => prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 4, 64]), 0..2000),
        1 => Just(PTX.as_bytes().to_vec()),
        1 => Just(b"scale\0".to_vec()),
        1 => Just(b"start\0".to_vec()),
    ]
}

fn call(connection: &Connection, op: u32, token: u32, args: &[u32], data: &[u8]) -> Verdict {
    let mut call = Call::new_zeroed();
    call.magic = MAGIC.into();
    call.op = op.into();
    call.owner = owner(7, token).into();
    call.num_args = (args.len() as u32).into();
    call.data_len = (data.len() as u32).into();
    for (to, from) in call.args.iter_mut().zip(args) {
        *to = (*from).into();
    }
    connection.call(&Header::new(CUDA_CALL, 7, 1, 88 + data.len() as u32), &call, data)
}

/// Makes arbitrary calls of one owner, some of which are meaningful. Another owner has memory that must stay
/// unchanged.
fn storm(mediator: &std::sync::Arc<Mediator>, calls: &[(u32, Vec<u32>, Vec<u8>)], check: bool) {
    let mut bystander = with(mediator, Properties { vm_id: 7, ..Properties::default() });
    bystander.token = 2;
    let address = bystander.alloc(4096);
    bystander.put(address, &pattern(1, 4096)).nothing();
    let connection = mediator.connect();
    for (op, args, data) in calls {
        match call(&connection, *op, 1, args, data) {
            Verdict::Answer(answer) => assert!(answer.outcome.num_results.get() <= 8),
            other => panic!("{other:?}"),
        }
    }
    if check {
        assert_eq!(bystander.get(address, 4096), pattern(1, 4096));
    }
    call(&connection, Op::PrimaryCtxRetain as u32, 1, &[0; 2], &[]);
    call(&connection, Op::ProcessCleanup as u32, 1, &[1], &[]);
    assert!(mediator.owners().iter().all(|owner| owner.process != 1), "a cleanup leaves nothing");
    bystander.free(address);
}

fn calls() -> impl Strategy<Value = Vec<(u32, Vec<u32>, Vec<u8>)>> {
    // Handles and addresses are assigned in order, so these are the first ones or close to them.
    let near = |base: u64| (0..24_u64).map(move |step| base + 16 * step);
    let known: Vec<u64> = near(0x5560_0000_0020).chain(near(0x7000_0000_0000)).collect();
    let op = prop_oneof![
        6 => prop::sample::select(Op::ALL.iter().map(|op| *op as u32).collect::<Vec<_>>()),
        1 => any::<u32>(),
    ];
    prop::collection::vec((op, prop::collection::vec(argument(&known), 0..=ARGS), payload()), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn calls_that_mean_anything_harm_nobody_over_the_soft_executor(calls in calls()) {
        // Large allocations and kernels would take too long.
        let calm = |(op, args, data): &(u32, Vec<u32>, Vec<u8>)| {
            let mut args = args.clone();
            for arg in args.iter_mut().filter(|arg| **arg > 1 << 24 && **arg < 0x5000_0000) {
                *arg >>= 12;
            }
            (*op, args, data.clone())
        };
        let calls: Vec<_> = calls.iter().map(calm).collect();
        storm(&Mediator::new(soft(), MediatorRules::default()).unwrap(), &calls, true);
    }

    #[test]
    fn calls_that_mean_anything_harm_nobody_over_the_null_executor(calls in calls()) {
        storm(&Mediator::new(null(), MediatorRules::default()).unwrap(), &calls, false);
    }

    /// After any accesses, every doorbell is answered, and the device still works.
    #[test]
    fn accesses_of_any_kind_leave_a_device_that_works(
        accesses in prop::collection::vec(
            (any::<bool>(), prop_oneof![4 => 0_u32..0x1000, 1 => any::<u32>()], 0_usize..9, prop_oneof![2 => 0_u64..20, 1 => any::<u64>()]),
            1..120,
        ),
        window in prop_oneof![Just(0_u64), 0..RAM],
    ) {
        let mut guest = with(&Mediator::new(null(), MediatorRules::default()).unwrap(), Properties::default());
        guest.register(window, 64 << 10);
        for (bar0, offset, size, value) in accesses {
            let bar = if bar0 { Bar::Bar0 } else { Bar::Bar1 };
            guest.device.write(bar, offset, size, value);
            let _ = guest.device.read(bar, offset, size);
        }
        still_works(&mut guest);
    }
}

fn still_works(guest: &mut Guest) {
    let start = std::time::Instant::now();
    while guest.read(vgpu_wire::v1::registers::STATUS) == vgpu_wire::v1::registers::BUSY {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    guest.write(vgpu_wire::v1::registers::SHMEM_CTRL, 0);
    guest.call(Op::Init, &[], &[]).one();
}
