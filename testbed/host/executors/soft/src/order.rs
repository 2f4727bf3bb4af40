//! In what order work may be done: CUDA's rules, as a graph of what has to come before what. Knows nothing of what the work is.
//!
//! * The work of one stream is done in the order in which it was given.
//! * Stream 0 waits for the earlier work of all blocking streams, and their later work waits for it.
//! * A stream that waits for an event waits for the event's newest record at that moment.
//! * After a join all later work, on any stream, waits for what the joined stream had been given.
//!
//! A node without a job is done as soon as all that comes before it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A piece of work. Later pieces have greater numbers.
pub(crate) type Id = u64;

/// A stream, as far as order needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Its number; 0 is the legacy default stream.
    pub(crate) number: u32,
    /// Whether it waits for stream 0 and is waited for by it.
    pub(crate) blocking: bool,
}

impl Stream {
    /// The legacy default stream.
    pub(crate) const DEFAULT: Self = Self { number: 0, blocking: true };
}

#[derive(Debug)]
struct Node<J> {
    /// Taken when it is begun.
    job: Option<J>,
    /// What came before when it was added.
    before: Vec<Id>,
    /// How much of that is not done.
    waits: usize,
    /// What comes after.
    after: Vec<Id>,
    /// Whose newest work this may be.
    stream: Option<u32>,
    /// Whether somebody outside notices when it is done.
    demanded: bool,
}

/// Stands for what a set of streams has been given, so that what comes after all of it need not name each stream. However often that
/// is asked for, each piece of work is named once.
#[derive(Debug, Default)]
struct Gather {
    /// A node that comes after all that was given, but for `fresh`.
    node: Option<Id>,
    /// Streams that have been given more since, and are not done with it.
    fresh: BTreeSet<u32>,
}

/// So many streams are named one by one: a node of its own would cost more.
const NAMED_MOST: usize = 4;

/// The newest work of a stream.
#[derive(Clone, Copy, Debug)]
struct Tail {
    id: Id,
}

/// Work that is not done.
#[derive(Debug)]
pub(crate) struct Order<J> {
    next: Id,
    /// A tree, which grows in small pieces: a table would want twice its size at once, which the host may not have.
    nodes: BTreeMap<Id, Node<J>>,
    /// Nodes with a job, not begun, before which nothing comes any more.
    ready: BTreeSet<Id>,
    /// Nodes that are not done and that somebody notices.
    demanded: BTreeSet<Id>,
    tails: HashMap<u32, Tail>,
    /// All streams, and those that stream 0 waits for.
    all: Gather,
    blocking: Gather,
    /// Comes before all that is added.
    barrier: Option<Id>,
    /// Newest records of events that are not done.
    records: HashMap<u32, Id>,
    /// How often a node was put behind another.
    #[cfg(test)]
    edges: usize,
}

impl<J> Default for Order<J> {
    fn default() -> Self {
        Self {
            next: 1,
            nodes: BTreeMap::new(),
            ready: BTreeSet::new(),
            demanded: BTreeSet::new(),
            tails: HashMap::new(),
            all: Gather::default(),
            blocking: Gather::default(),
            barrier: None,
            records: HashMap::new(),
            #[cfg(test)]
            edges: 0,
        }
    }
}

impl<J> Order<J> {
    /// How much is not done.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// What may be begun, oldest first.
    pub(crate) const fn ready(&self) -> &BTreeSet<Id> {
        &self.ready
    }

    /// What somebody waits for, or may.
    pub(crate) const fn demanded(&self) -> &BTreeSet<Id> {
        &self.demanded
    }

    /// Adds a node behind others, of which those that are done do not count.
    fn add(&mut self, before: impl IntoIterator<Item = Id>, job: Option<J>, demanded: bool) -> Id {
        let id = self.next;
        self.next += 1;
        let mut before: Vec<Id> =
            before.into_iter().chain(self.barrier).filter(|id| self.nodes.contains_key(id)).collect();
        before.sort_unstable();
        before.dedup();
        for earlier in &before {
            if let Some(node) = self.nodes.get_mut(earlier) {
                node.after.push(id);
            }
        }
        if before.is_empty() {
            if job.is_none() {
                // Done already.
                return id;
            }
            self.ready.insert(id);
        }
        if demanded {
            self.demanded.insert(id);
        }
        #[cfg(test)]
        {
            self.edges += before.len();
        }
        let waits = before.len();
        self.nodes.insert(id, Node { job, before, waits, after: Vec::new(), stream: None, demanded });
        id
    }

    /// Makes a node the newest of a stream, if it is not done.
    fn set_tail(&mut self, stream: Stream, id: Id) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.stream = Some(stream.number);
            self.tails.insert(stream.number, Tail { id });
            self.all.fresh.insert(stream.number);
            if stream.blocking {
                self.blocking.fresh.insert(stream.number);
            } else {
                self.blocking.fresh.remove(&stream.number);
            }
        }
    }

    /// What comes after all that a set of streams was given is after these few.
    fn gather(&mut self, set: impl Fn(&mut Self) -> &mut Gather) -> Vec<Id> {
        let Gather { node, fresh } = set(self);
        let (node, fresh) = (*node, fresh.clone());
        let tails = fresh.iter().filter_map(|stream| self.tails.get(stream).map(|tail| tail.id));
        let before: Vec<Id> = tails.chain(node).collect();
        if fresh.len() <= NAMED_MOST {
            return before;
        }
        let id = self.add(before, None, false);
        *set(self) = Gather { node: Some(id), fresh: BTreeSet::new() };
        vec![id]
    }

    /// What the next work of a stream comes after.
    fn before(&mut self, stream: Stream) -> Vec<Id> {
        if stream.number == 0 {
            return self.gather(|order| &mut order.blocking);
        }
        let own = self.tails.get(&stream.number);
        let default = self.tails.get(&0).filter(|_| stream.blocking);
        own.into_iter().chain(default).map(|tail| tail.id).collect()
    }

    /// What a stream has been given. To ask for it is an action of the stream: one of stream 0 comes after all blocking ones.
    fn given(&mut self, stream: Stream) -> Vec<Id> {
        if stream.number == 0 {
            return self.before(stream);
        }
        self.tails.get(&stream.number).map(|tail| tail.id).into_iter().collect()
    }

    /// What all streams have been given.
    fn all(&mut self) -> Vec<Id> {
        self.gather(|order| &mut order.all)
    }

    /// What a stream has been given, or all of them.
    fn given_to(&mut self, stream: Option<Stream>) -> Vec<Id> {
        match stream {
            Some(stream) => self.given(stream),
            None => self.all(),
        }
    }

    /// Work of a stream.
    pub(crate) fn push(&mut self, stream: Stream, job: J, demanded: bool) -> Id {
        let before = self.before(stream);
        let id = self.add(before, Some(job), demanded);
        self.set_tail(stream, id);
        id
    }

    /// A record of an event.
    pub(crate) fn record(&mut self, stream: Stream, event: u32, job: J) {
        let id = self.push(stream, job, true);
        self.records.insert(event, id);
    }

    /// Later work of the stream waits for the event.
    pub(crate) fn wait(&mut self, stream: Stream, event: u32) {
        let mut before = self.before(stream);
        before.extend(self.records.get(&event));
        let id = self.add(before, None, false);
        self.set_tail(stream, id);
    }

    /// The event is no more: its number may be another's.
    pub(crate) fn forget(&mut self, event: u32) {
        self.records.remove(&event);
    }

    /// Something after all that a stream was given, and before nothing; of no stream: after all of all streams.
    pub(crate) fn after(&mut self, stream: Option<Stream>, job: J) {
        let before = self.given_to(stream);
        self.add(before, Some(job), true);
    }

    /// All later work waits for what a stream was given; of no stream: for all of all streams.
    pub(crate) fn join(&mut self, stream: Option<Stream>) {
        let before = self.given_to(stream);
        let id = self.add(before, None, false);
        self.barrier = Some(id);
    }

    /// Something before all later work. `all`: after all earlier work, too; else only after earlier ones of this kind.
    pub(crate) fn between(&mut self, all: bool, job: J) {
        let before = if all { self.all() } else { Vec::new() };
        let id = self.add(before, Some(job), true);
        self.barrier = Some(id);
    }

    /// Work of a stream in pieces with an order of their own.
    pub(crate) fn group(&mut self, stream: Stream, after: Option<Id>) -> Group {
        let mut before = self.before(stream);
        before.extend(after);
        let start = self.add(before, None, false);
        Group { stream, start, pieces: Vec::new(), leaves: BTreeSet::new() }
    }

    /// A piece of a group, after earlier ones of it, which are named by their indices. `event`: after its newest record, too.
    pub(crate) fn piece(
        &mut self,
        group: &mut Group,
        after: impl Iterator<Item = u32>,
        event: Option<u32>,
        job: Option<J>,
        demanded: bool,
    ) -> Id {
        let mut before = vec![group.start];
        for index in after {
            let id = group.pieces[index as usize];
            group.leaves.remove(&id);
            before.push(id);
        }
        before.extend(event.and_then(|event| self.records.get(&event)));
        let id = self.add(before, job, demanded);
        group.pieces.push(id);
        group.leaves.insert(id);
        id
    }

    /// A piece of a group was an event's record.
    pub(crate) fn set_record(&mut self, event: u32, id: Id) {
        self.records.insert(event, id);
    }

    /// The stream goes on after all of the group. What stands for its end.
    pub(crate) fn end_group(&mut self, group: Group) -> Id {
        let Group { stream, start, leaves, .. } = group;
        let id = self.add(leaves.into_iter().chain([start]), None, false);
        self.set_tail(stream, id);
        id
    }

    /// Begins a node that is ready.
    pub(crate) fn begin(&mut self, id: Id) -> Option<J> {
        self.ready.remove(&id).then(|| self.nodes.get_mut(&id)?.job.take()).flatten()
    }

    /// A node that was begun is done.
    pub(crate) fn finish(&mut self, id: Id) {
        let mut done = vec![id];
        while let Some(id) = done.pop() {
            let Some(node) = self.nodes.remove(&id) else { continue };
            if node.demanded {
                self.demanded.remove(&id);
            }
            if let Some(stream) = node.stream
                && self.tails.get(&stream).is_some_and(|tail| tail.id == id)
            {
                self.tails.remove(&stream);
                self.all.fresh.remove(&stream);
                self.blocking.fresh.remove(&stream);
            }
            for later in node.after {
                let Some(node) = self.nodes.get_mut(&later) else { continue };
                node.waits -= 1;
                if node.waits == 0 {
                    if node.job.is_some() {
                        self.ready.insert(later);
                    } else {
                        done.push(later);
                    }
                }
            }
        }
        if self.nodes.is_empty() {
            self.records.clear();
            self.barrier = None;
            self.all = Gather::default();
            self.blocking = Gather::default();
        }
    }

    /// Of what is ready, that which has to be done before something demanded can be.
    pub(crate) fn needed(&self) -> Vec<Id> {
        let mut open: Vec<Id> = self.demanded.iter().copied().collect();
        let mut seen: BTreeSet<Id> = self.demanded.clone();
        while let Some(id) = open.pop() {
            for &before in self.nodes.get(&id).map_or(&[][..], |node| &node.before) {
                if seen.insert(before) {
                    open.push(before);
                }
            }
        }
        self.ready.intersection(&seen).copied().collect()
    }
}

/// Work of a stream in pieces, while it is added.
#[derive(Debug)]
pub(crate) struct Group {
    stream: Stream,
    start: Id,
    pieces: Vec<Id>,
    /// Pieces that no other comes after.
    leaves: BTreeSet<Id>,
}

#[cfg(test)]
mod tests;
