//! Requirements on a bus under siege.

use super::report::Bus;

/// First round of the memory comparison. Earlier rounds fill caches that are then reused.
const FILLED: usize = 2;
/// Last round of the memory comparison, which starts at [`FILLED`].
pub const LAST: usize = 10;
/// Accepted growth of a device's resident memory in KiB.
const GROWTH_KIB: u64 = 8 << 10;
/// Minimum rate of a good program beside N hostile ones, as a fraction of its fair share of 1 / (N + 1).
const FAIR: f64 = 0.8;

/// Returns the minimum rate of a good program beside `others` programs, as a fraction of its rate alone.
#[allow(clippy::cast_precision_loss, reason = "a few dozen")]
pub fn bound(others: usize) -> f64 {
    FAIR / (others + 1) as f64
}

/// Judges bytes, charges and completion, and adds violations to the failures.
pub fn correct(bus: &mut Bus) {
    let mut failures = Vec::new();
    if bus.wrong_bytes > 0 {
        failures.push(format!("{} of {} compared bytes are wrong", bus.wrong_bytes, bus.compared_bytes));
    }
    for (round, &charged) in bus.charged_after.iter().enumerate().filter(|(_, charged)| **charged > 0) {
        failures.push(format!("{charged} bytes are charged to sessions that ended in round {}", round + 1));
    }
    for (name, class) in bus.classes.iter().filter(|(_, class)| class.begun == 0) {
        failures.push(format!("{name} never came to its attack: {}", class.last_words));
    }
    bus.failures.extend(failures);
}

/// Judges speed and memory too, after a run of at least [`LAST`] rounds.
pub fn lasting(bus: &mut Bus) {
    let mut failures = Vec::new();
    if let Some(bound) = bus.good_bound {
        for share in bus.judged_shares().iter().filter(|share| **share < bound) {
            failures
                .push(format!("a good program did {share:.3} of what it does alone, less than {bound:.3}"));
        }
    }
    let own = |round: usize| {
        let (rss, kept) = (bus.rss_kib.get(round - 1)?, bus.kept_image_kib.get(round - 1)?);
        Some(rss.saturating_sub(*kept))
    };
    match (own(FILLED), own(LAST)) {
        (Some(before), Some(after)) if after > before + GROWTH_KIB => {
            failures.push(format!("the device's memory grew from {before} KiB after round {FILLED} to {after} KiB after round {LAST}"));
        }
        (Some(_), Some(_)) => {}
        _ => failures.push(format!("{} rounds are too few to judge the device's memory", bus.rounds)),
    }
    bus.failures.extend(failures);
}

#[cfg(test)]
mod tests {
    use super::super::report::Class;
    use super::*;

    fn good() -> Bus {
        let began = Class { rounds: 1, begun: 1, starts: 1, ..Class::default() };
        Bus {
            rounds: 10,
            compared_bytes: 1 << 20,
            charged_after: vec![0; 10],
            rss_kib: vec![50 << 10; 10],
            kept_image_kib: vec![0; 10],
            good_bound: Some(bound(4)),
            good_share: vec![0.2; 10],
            classes: [("copies".to_owned(), began)].into(),
            ..Bus::default()
        }
    }

    fn failures(change: impl Fn(&mut Bus)) -> Vec<String> {
        let mut bus = good();
        change(&mut bus);
        correct(&mut bus);
        lasting(&mut bus);
        bus.failures
    }

    #[test]
    fn what_holds_is_no_failure() {
        assert_eq!(failures(|_| {}), Vec::<String>::new());
        assert_eq!(failures(|bus| bus.rss_kib[9] += GROWTH_KIB), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_does_not_hold_is_named() {
        assert!(failures(|bus| bus.wrong_bytes = 1)[0].contains("1 of 1048576 compared bytes are wrong"));
        assert!(failures(|bus| bus.charged_after[3] = 4096)[0].contains("4096 bytes are charged"));
        assert!(failures(|bus| bus.good_share[5] = 0.15)[0].contains("0.150 of what it does alone"));
        let starved = |bus: &mut Bus| bus.device_share = vec![0.15; 10];
        assert!(failures(starved)[0].contains("0.150 of what it does alone"));
        assert!(failures(|bus| bus.rss_kib[9] += GROWTH_KIB + 1)[0].contains("grew"));
        assert!(failures(|bus| bus.rss_kib.truncate(9))[0].contains("too few"));
        let never = |bus: &mut Bus| bus.classes.values_mut().for_each(|class| class.begun = 0);
        assert!(failures(never)[0].contains("copies never came to its attack"));
    }

    #[test]
    fn a_guest_that_runs_its_own_programs_seldom_is_not_the_devices_fault() {
        let change = |bus: &mut Bus| {
            bus.good_share[5] = 0.1;
            bus.device_share = vec![0.3; 10];
        };
        assert_eq!(failures(change), Vec::<String>::new());
    }

    #[test]
    fn kept_images_are_no_growth() {
        let change = |bus: &mut Bus| {
            bus.rss_kib[9] += 64 << 10;
            bus.kept_image_kib[9] += 60 << 10;
        };
        assert_eq!(failures(change), Vec::<String>::new());
    }
}
