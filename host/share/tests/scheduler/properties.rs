//! What the scheduler keeps, whatever VMs do.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use vgpu_share::scheduler::SLICE;

use crate::simulation::{Habit, STEP, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const MS: u64 = 1_000_000;
const SLICE_NS: u64 = SLICE.as_nanos() as u64;
/// Time after which a start does not show any more.
const SETTLED: Duration = Duration::from_millis(400);

/// Length of a kernel, shorter than a slice.
fn short() -> impl Strategy<Value = u64> {
    prop_oneof![10_000..100_000u64, 100_000..MS, MS..SLICE_NS * 9 / 10]
}

fn busy_vms() -> impl Strategy<Value = Vec<(Habit, u32)>> {
    prop::collection::vec((short().prop_map(Habit::Busy), 1..8u32), 2..=64)
}

fn any_habit() -> impl Strategy<Value = Habit> {
    prop_oneof![
        (10_000..2_000 * MS).prop_map(Habit::Busy),
        (10_000..20 * MS, 0..50 * MS).prop_map(|(work, pause)| Habit::Light { work, pause }),
        Just(Habit::Endless),
        Just(Habit::Boasts),
        Just(Habit::Stalls),
        (0..1_500 * MS).prop_map(Habit::Hangs),
        (3 * MS..500 * MS).prop_map(Habit::Visits),
    ]
}

/// Returns how many inputs are drawn, and from what: the same in each run, for a run that fails says nothing
/// about its change if the next one draws better. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` search elsewhere.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 32;
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn busy_vms_get_their_weights_within_2_percent(vms in busy_vms()) {
        let weights: u32 = vms.iter().map(|(_, weight)| weight).sum();
        let mut simulation = Simulation::new(vms.clone());
        simulation.run(SETTLED);
        let shares = simulation.shares(SECOND);
        let all: f64 = shares.iter().sum();
        prop_assert!(all >= 0.93, "only {all} of the time is used");
        for (share, (_, weight)) in shares.iter().zip(&vms) {
            let due = f64::from(*weight) / f64::from(weights);
            prop_assert!((share / all - due).abs() <= 0.02, "{share} of {all} instead of {due}");
        }
    }

    /// Beside whatever, a busy VM gets nearly its share.
    #[test]
    fn nobody_starves(others in prop::collection::vec((any_habit(), 1..4u32), 1..=63), length in short()) {
        let vms = [(Habit::Busy(length), 2)].into_iter().chain(others.iter().copied());
        let mut simulation = Simulation::new(vms);
        simulation.run(SETTLED);
        let share = simulation.shares(2 * SECOND)[0];
        let due = least_share(2, &others);
        prop_assert!(share >= 0.9 * due - 0.01, "{share} instead of {due}");
    }

    /// Work that is shorter than a slice waits for two at most, however many VMs are busy.
    #[test]
    fn short_work_of_a_light_vm_is_next(
        others in prop::collection::vec(short().prop_map(|length| (Habit::Busy(length), 1)), 1..=63),
        work in 10_000..2 * MS,
    ) {
        // It asks for half of its share. The time until its answer arrives is also its own.
        let pause = (work + 4 * STEP) * 2 * (others.len() as u64 + 1);
        let vms = [(Habit::Light { work, pause }, 1)].into_iter().chain(others);
        let mut simulation = Simulation::new(vms);
        simulation.run(SETTLED);
        simulation.vms[0].waits.clear();
        simulation.run(2 * SECOND);
        let worst = simulation.vms[0].waits.iter().max().copied();
        prop_assert!(worst.is_none_or(|worst| worst <= work + 2 * SLICE_NS), "{worst:?} for {work}");
    }

    /// A VM that has had too much waits until the other has had as much.
    #[test]
    fn debts_are_repaid(long in 10 * MS..400 * MS, weight in 1..4u32) {
        let vms = [(Habit::Busy(long), weight), (Habit::Busy(MS), 1)];
        let mut simulation = Simulation::new(vms);
        simulation.run(SETTLED);
        let shares = simulation.shares(8 * SECOND);
        let due = f64::from(weight) / f64::from(weight + 1);
        // The long kernel runs beside the other, at half of the speed, once it has taken two slices. A VM of
        // a greater weight than that cannot have more.
        let share = shares[0] / (shares[0] + shares[1]);
        prop_assert!(share <= due + 0.03, "{share} instead of {due}");
        prop_assert!(share >= due.min(0.5) - 0.05, "{share} instead of {due}");
    }
}

/// Returns the least share of the GPU that a VM of a weight has to get beside others.
///
/// A kernel that exceeds two slices goes on beside others, and takes the part of the GPU that the driver gives
/// it, one that ends is also repaid by slices. Which of the two costs the VM more depends on the others.
fn least_share(weight: u32, others: &[(Habit, u32)]) -> f64 {
    let length = |habit| match habit {
        Habit::Endless => u64::MAX,
        Habit::Busy(length) | Habit::Light { work: length, .. } => length,
        _ => 0,
    };
    let mut turns: u32 = weight + others.iter().map(|(_, weight)| weight).sum::<u32>();
    let mut long: Vec<_> = others.iter().filter(|(habit, _)| length(*habit) > 2 * SLICE_NS).collect();
    long.sort_by_key(|(habit, weight)| (length(*habit) != u64::MAX, *weight));
    let endless = long.iter().filter(|(habit, _)| length(*habit) == u64::MAX).count();
    let mut least = f64::INFINITY;
    for beside in 0..=long.len() {
        if beside >= endless {
            let part = f64::from(weight) / f64::from(turns);
            least = least.min(part / f64::from(1 + u32::try_from(beside).unwrap()));
        }
        turns -= long.get(beside).map_or(0, |(_, weight)| *weight);
    }
    least
}

#[test]
fn a_vm_beside_an_endless_kernel_keeps_half() {
    for bad in [Habit::Endless, Habit::Stalls, Habit::Hangs(0), Habit::Boasts] {
        let mut simulation = Simulation::new([(bad, 1), (Habit::Busy(MS), 1)]);
        simulation.run(SETTLED);
        let share = simulation.shares(4 * SECOND)[1];
        assert!(share >= 0.47, "{share} beside {bad:?}");
    }
}

#[test]
fn a_vm_alone_is_open_and_loses_nothing() {
    let mut simulation =
        Simulation::new([(Habit::Busy(MS), 1), (Habit::Light { work: MS, pause: u64::MAX / 2 }, 1)]);
    simulation.run(SETTLED);
    assert!(simulation.shares(SECOND)[0] >= 0.999);
    assert_eq!(
        simulation.scheduler.order(0).map(|order| order.mode),
        Some(vgpu_share::scheduler::Mode::Open)
    );
    assert!(!simulation.scheduler.is_contended());
    assert_eq!(simulation.scheduler.next_tick(), None);
}

#[test]
fn time_that_nobody_else_wants_is_not_lost() {
    let light = Habit::Light { work: MS, pause: 9 * MS };
    let mut simulation = Simulation::new([(Habit::Busy(200_000), 1), (light, 1)]);
    simulation.run(SETTLED);
    let shares = simulation.shares(4 * SECOND);
    assert!(shares[0] + shares[1] >= 0.94, "{shares:?}");
    // It asks for a tenth, less what it waits.
    let asked = 1.0 / 10.0;
    assert!(shares[1] >= 0.6 * asked, "{shares:?}");
}

/// Work in flight would last 4 ms beyond each slice if slices were ended when they are due.
#[test]
fn slices_are_ended_before_they_are_due() {
    let mut simulation = Simulation::new([(Habit::Busy(50_000), 1), (Habit::Busy(50_000), 1)]);
    simulation.run(SETTLED);
    let _ = simulation.scheduler.take_overruns();
    simulation.run(SECOND);
    let overruns = simulation.scheduler.take_overruns();
    let sum: u64 = overruns.iter().map(|overrun| overrun.nanoseconds).sum();
    assert!(sum / (overruns.len() as u64) < 2 * MS, "{overruns:?}");
}

#[test]
fn work_after_a_slice_is_observed() {
    let mut simulation = Simulation::new([(Habit::Busy(4 * MS), 1), (Habit::Busy(50_000), 1)]);
    simulation.run(SECOND);
    let overruns = simulation.scheduler.take_overruns();
    let longest =
        |vm| overruns.iter().filter(|overrun| overrun.vm == vm).map(|overrun| overrun.nanoseconds).max();
    assert!(longest(0) > Some(2 * MS) && longest(1) < Some(SLICE_NS), "{:?} {:?}", longest(0), longest(1));
    assert_eq!(simulation.scheduler.take_overruns(), []);
}
