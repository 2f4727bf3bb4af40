//! Tests of the order against a model that derives from the list of all actions which work must precede
//! which.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::queue::Adversary;

/// An action of a program, in the model and in the order.
#[derive(Clone, Copy, Debug)]
enum Action {
    Work(u32),
    Record(u32, u32),
    Wait(u32, u32),
    Join(Option<u32>),
    After(Option<u32>),
    Between(bool),
    /// A graph of three nodes: two that are independent, and one that depends on both.
    Group(u32),
}

/// Returns a stream by its number. Streams 1, 2 and 5 to 9 are blocking; 3, 4 and 10 to 13 are not.
fn stream(number: u32) -> Stream {
    Stream { number, blocking: matches!(number, 0..3 | 5..10) }
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let streams = 0u32..14;
    let one = prop_oneof![
        6 => streams.clone().prop_map(Action::Work),
        2 => (streams.clone(), 0u32..3).prop_map(|(s, e)| Action::Record(s, e)),
        2 => (streams.clone(), 0u32..3).prop_map(|(s, e)| Action::Wait(s, e)),
        1 => prop::option::weighted(0.8, streams.clone()).prop_map(Action::Join),
        1 => prop::option::weighted(0.8, streams.clone()).prop_map(Action::After),
        1 => any::<bool>().prop_map(Action::Between),
        1 => streams.prop_map(Action::Group),
    ];
    prop::collection::vec(one, 1..60)
}

/// Model of the order: for every piece of work, the transitively closed set of the work before it. An entry
/// without a name is an action that is no work itself.
#[derive(Default)]
struct Model {
    before: Vec<BTreeSet<usize>>,
    /// Entries that the next work of each stream is ordered after.
    streams: HashMap<u32, BTreeSet<usize>>,
    joined: BTreeSet<usize>,
    events: HashMap<u32, BTreeSet<usize>>,
}

impl Model {
    fn close(&self, entries: impl IntoIterator<Item = usize>) -> BTreeSet<usize> {
        entries.into_iter().flat_map(|entry| self.before[entry].iter().copied().chain([entry])).collect()
    }

    /// Returns the entries that an action of the stream is ordered after.
    fn before_stream(&self, number: u32) -> BTreeSet<usize> {
        let mut all = self.joined.clone();
        for (&other, entries) in &self.streams {
            let ordered = other == number
                || (number == 0 && stream(other).blocking)
                || (other == 0 && stream(number).blocking);
            if ordered {
                all.extend(entries);
            }
        }
        all
    }

    fn given(&self, number: Option<u32>) -> BTreeSet<usize> {
        let mut all = self.joined.clone();
        match number {
            None => all.extend(self.streams.values().flatten()),
            Some(0) => all = self.before_stream(0),
            Some(number) => all.extend(self.streams.get(&number).into_iter().flatten()),
        }
        all
    }

    fn add(&mut self, after: BTreeSet<usize>) -> usize {
        let closed = self.close(after);
        self.before.push(closed);
        self.before.len() - 1
    }

    fn act(&mut self, action: Action) -> Vec<usize> {
        match action {
            Action::Work(s) => {
                let entry = self.add(self.before_stream(s));
                self.streams.entry(s).or_default().insert(entry);
                vec![entry]
            }
            Action::Record(s, e) => {
                let entry = self.add(self.before_stream(s));
                self.streams.entry(s).or_default().insert(entry);
                self.events.insert(e, BTreeSet::from([entry]));
                vec![entry]
            }
            Action::Wait(s, e) => {
                let mut waits = self.events.get(&e).cloned().unwrap_or_default();
                // An action of the stream is also ordered after them.
                waits.extend(self.before_stream(s));
                self.streams.entry(s).or_default().extend(waits);
                vec![]
            }
            Action::Join(s) => {
                self.joined = self.given(s);
                vec![]
            }
            Action::After(s) => vec![self.add(self.given(s))],
            Action::Between(all) => {
                let after = if all { self.given(None) } else { self.joined.clone() };
                let entry = self.add(after);
                self.joined.insert(entry);
                vec![entry]
            }
            Action::Group(s) => {
                let before = self.before_stream(s);
                let (a, b) = (self.add(before.clone()), self.add(before));
                let c = self.add(BTreeSet::from([a, b]));
                self.streams.entry(s).or_default().insert(c);
                vec![a, b, c]
            }
        }
    }
}

fn act(order: &mut Order<usize>, action: Action, entries: &[usize]) {
    match action {
        Action::Work(s) => drop(order.push(stream(s), entries[0], false)),
        Action::Record(s, e) => order.record(stream(s), e, entries[0]),
        Action::Wait(s, e) => order.wait(stream(s), e),
        Action::Join(s) => order.join(s.map(stream)),
        Action::After(s) => order.after(s.map(stream), entries[0]),
        Action::Between(all) => order.between(all, entries[0]),
        Action::Group(s) => {
            let mut group = order.group(stream(s), None);
            order.piece(&mut group, [].into_iter(), None, Some(entries[0]), false);
            order.piece(&mut group, [].into_iter(), None, Some(entries[1]), false);
            order.piece(&mut group, [0, 1].into_iter(), None, Some(entries[2]), false);
            order.end_group(group);
        }
    }
}

proptest! {
    #[test]
    fn exactly_what_may_come_next_is_ready(actions in actions(), choices in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 120)) {
        let (mut order, mut model) = (Order::default(), Model::default());
        let mut done: BTreeSet<usize> = BTreeSet::new();
        let mut names: HashMap<Id, usize> = HashMap::new();
        let mut rest = actions.into_iter();
        for (give, which) in choices {
            if give && let Some(action) = rest.next() {
                let entries = model.act(action);
                act(&mut order, action, &entries);
            } else if let Some(&id) = order.ready().iter().nth(which.index(order.ready().len().max(1))) {
                let entry = order.begin(id).unwrap();
                order.finish(id);
                prop_assert!(done.insert(entry));
            }
            for &id in order.ready() {
                names.insert(id, *order.nodes[&id].job.as_ref().unwrap());
            }
            let ready: BTreeSet<usize> = order.ready().iter().map(|id| names[id]).collect();
            let expected: BTreeSet<usize> = (0..model.before.len())
                .filter(|entry| !done.contains(entry) && model.before[*entry].is_subset(&done))
                .collect();
            prop_assert_eq!(ready, expected);
            prop_assert!(order.needed().iter().all(|id| order.ready().contains(id)));
        }
    }

    #[test]
    fn adversaries_respect_the_order_and_leave_nothing(actions in actions(), seed: u64) {
        let (mut order, mut model) = (Order::default(), Model::default());
        for action in actions {
            let entries = model.act(action);
            act(&mut order, action, &entries);
        }
        let mut adversary = Adversary::new(seed);
        let mut done = BTreeSet::new();
        while let Some(id) = adversary.choose(&order, false) {
            let entry = order.begin(id).unwrap();
            prop_assert!(model.before[entry].is_subset(&done), "{entry} before its time");
            done.insert(entry);
            order.finish(id);
        }
        prop_assert_eq!((done.len(), order.len()), (model.before.len(), 0));
        prop_assert!(order.tails.is_empty() && order.demanded.is_empty() && order.ready.is_empty());
    }
}

/// Returns the order in which an adversary carries out six pieces of work, three of each of two streams.
fn two_streams(seed: u64, between: impl Fn(&mut Order<u32>)) -> Vec<u32> {
    let mut order = Order::default();
    for job in 0..3 {
        order.push(stream(3), job, false);
    }
    between(&mut order);
    for job in 3..6 {
        order.push(stream(4), job, false);
    }
    let mut adversary = Adversary::new(seed);
    let mut done = Vec::new();
    while let Some(id) = adversary.choose(&order, false) {
        done.push(order.begin(id).unwrap());
        order.finish(id);
    }
    done
}

#[test]
fn unordered_streams_are_done_in_many_orders_and_ordered_ones_in_one() {
    let orders: BTreeSet<Vec<u32>> = (0..3000).map(|seed| two_streams(seed, |_| ())).collect();
    // There are as many orders as interleavings of three and three.
    assert_eq!(orders.len(), 20);
    let straight = vec![0, 1, 2, 3, 4, 5];
    let orderings: [fn(&mut Order<u32>); 4] = [
        |order| order.join(Some(stream(3))),
        |order| order.join(None),
        |order| order.between(true, 9),
        |order| {
            order.record(stream(3), 1, 9);
            order.wait(stream(4), 1);
        },
    ];
    for between in orderings {
        for seed in 0..100 {
            let mut done = two_streams(seed, between);
            done.retain(|&job| job != 9);
            assert_eq!(done, straight);
        }
    }
}

#[test]
fn what_nobody_waits_for_is_put_off() {
    let mut order = Order::default();
    order.push(stream(3), 1, false);
    let mut adversary = Adversary::new(1);
    assert_eq!(adversary.choose(&order, true), None);
    let later = order.push(stream(4), 2, false);
    order.after(Some(stream(4)), 3);
    assert_eq!(order.needed(), [later]);
    assert!(adversary.choose(&order, true).is_some());
}

/// Adds a dependency on the work of many streams.
type Dependency = fn(&mut Order<u32>);

/// Memory grows linearly with work behind a held stream: `n` streams get one piece of work each, then `n`
/// pieces are ordered after all of them, by each kind of dependency.
#[test]
fn work_behind_a_held_stream_takes_memory_in_proportion() {
    let ways: [(&str, Dependency); 6] = [
        ("stream 0", |order| {
            order.push(Stream::DEFAULT, 1, false);
        }),
        ("after stream 0", |order| order.after(Some(Stream::DEFAULT), 1)),
        ("after all", |order| order.after(None, 1)),
        ("join all", |order| order.join(None)),
        ("join stream 0", |order| order.join(Some(Stream::DEFAULT))),
        ("between", |order| order.between(true, 1)),
    ];
    for (name, way) in ways {
        let edges = |n: u32| {
            let mut order = Order::default();
            let hold = order.push(stream(1), 0, true);
            order.begin(hold);
            for number in 100..100 + n {
                order.wait(Stream { number, blocking: true }, 7);
                order.push(Stream { number, blocking: true }, 0, false);
            }
            for round in 0..n {
                // Some streams get more work in between.
                order.push(Stream { number: 100 + round % 3, blocking: true }, 0, false);
                way(&mut order);
            }
            order.edges + order.len()
        };
        let (once, four) = (edges(500), edges(2000));
        assert!(four <= 5 * once, "{name}: {once} edges become {four}");
    }
}
