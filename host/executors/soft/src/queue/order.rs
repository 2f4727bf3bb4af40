//! The order in which work may be done: CUDA's rules, as a graph of what must come before what. Nothing here
//! knows what the work is.
//!
//! * The work of one stream is done in the order in which it was given.
//! * Stream 0 waits for the earlier work of all blocking streams, and their later work waits for it.
//! * A stream that waits for an event waits for the event's newest record at that moment.
//! * After a join all later work, on any stream, waits for what the joined stream had been given.
//!
//! A node without a job is done as soon as everything before it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The number of a piece of work. Later pieces have greater numbers.
pub(crate) type Id = u64;

/// A stream, as far as its order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Number of the stream; 0 is the legacy default stream.
    pub(crate) number: u32,
    /// Whether the stream and stream 0 wait for each other.
    pub(crate) blocking: bool,
}

impl Stream {
    /// The legacy default stream.
    pub(crate) const DEFAULT: Self = Self { number: 0, blocking: true };
}

#[derive(Debug)]
struct Node<J> {
    /// The work, until it is started.
    job: Option<J>,
    /// The nodes before this one when it was added.
    before: Vec<Id>,
    /// Number of nodes before this one that are not done.
    waits: usize,
    /// The nodes behind this one.
    after: Vec<Id>,
    /// The stream whose newest work this may be.
    stream: Option<u32>,
    /// Whether somebody outside notices when this is done.
    demanded: bool,
}

/// Stands for everything that a set of streams has been given, so that work behind all of it need not name
/// each stream. However often it is asked for, each piece of work is named once.
#[derive(Debug, Default)]
struct Gather {
    /// A node behind everything that was given, except to the streams of `fresh`.
    node: Option<Id>,
    /// Streams that have been given more since and are not done with it.
    fresh: BTreeSet<u32>,
}

/// Up to this many streams are named one by one, because a node for them would cost more.
const NAMED_MOST: usize = 4;

/// The newest work of a stream.
#[derive(Clone, Copy, Debug)]
struct Tail {
    id: Id,
}

/// Work that is not done, and its order.
#[derive(Debug)]
pub(crate) struct Order<J> {
    next: Id,
    /// A tree, because it grows in small pieces: a table would need twice its size at once, which the host
    /// may not have.
    nodes: BTreeMap<Id, Node<J>>,
    /// Nodes whose job has not started and before which everything is done.
    ready: BTreeSet<Id>,
    /// Nodes that are not done and whose end somebody notices.
    demanded: BTreeSet<Id>,
    tails: HashMap<u32, Tail>,
    /// All streams, and those for which stream 0 waits.
    all: Gather,
    blocking: Gather,
    /// A node that comes before everything that is added.
    barrier: Option<Id>,
    /// The newest record of each event, while it is not done.
    records: HashMap<u32, Id>,
    /// Number of times that a node was put behind another.
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
    /// Number of nodes that are not done.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Work that may start, oldest first.
    pub(crate) const fn ready(&self) -> &BTreeSet<Id> {
        &self.ready
    }

    /// Work for which somebody waits or may wait.
    pub(crate) const fn demanded(&self) -> &BTreeSet<Id> {
        &self.demanded
    }

    /// Adds a node behind others. Those that are done do not count.
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
                // The node is done already.
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

    /// Makes a node the newest of a stream, unless it is done.
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

    /// A few nodes that stand for everything that a set of streams was given.
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

    /// The nodes that come before the next work of a stream.
    fn before(&mut self, stream: Stream) -> Vec<Id> {
        if stream.number == 0 {
            return self.gather(|order| &mut order.blocking);
        }
        let own = self.tails.get(&stream.number);
        let default = self.tails.get(&0).filter(|_| stream.blocking);
        own.into_iter().chain(default).map(|tail| tail.id).collect()
    }

    /// The nodes that stand for what a stream has been given. To ask for it is an action of the stream: one
    /// of stream 0 comes after all blocking streams.
    fn given(&mut self, stream: Stream) -> Vec<Id> {
        if stream.number == 0 {
            return self.before(stream);
        }
        self.tails.get(&stream.number).map(|tail| tail.id).into_iter().collect()
    }

    /// The nodes that stand for what all streams have been given.
    fn all(&mut self) -> Vec<Id> {
        self.gather(|order| &mut order.all)
    }

    /// The nodes that stand for what a stream has been given, or all streams.
    fn given_to(&mut self, stream: Option<Stream>) -> Vec<Id> {
        match stream {
            Some(stream) => self.given(stream),
            None => self.all(),
        }
    }

    /// Adds work of a stream.
    pub(crate) fn push(&mut self, stream: Stream, job: J, demanded: bool) -> Id {
        let before = self.before(stream);
        let id = self.add(before, Some(job), demanded);
        self.set_tail(stream, id);
        id
    }

    /// Adds the record of an event.
    pub(crate) fn record(&mut self, stream: Stream, event: u32, job: J) {
        let id = self.push(stream, job, true);
        self.records.insert(event, id);
    }

    /// Makes later work of a stream wait for an event.
    pub(crate) fn wait(&mut self, stream: Stream, event: u32) {
        let mut before = self.before(stream);
        before.extend(self.records.get(&event));
        let id = self.add(before, None, false);
        self.set_tail(stream, id);
    }

    /// Forgets an event, whose number may be given to another.
    pub(crate) fn forget(&mut self, event: u32) {
        self.records.remove(&event);
    }

    /// Adds work behind everything that a stream was given, or all streams. No later work waits for it.
    pub(crate) fn after(&mut self, stream: Option<Stream>, job: J) {
        let before = self.given_to(stream);
        self.add(before, Some(job), true);
    }

    /// Makes all later work wait for what a stream was given, or all streams.
    pub(crate) fn join(&mut self, stream: Option<Stream>) {
        let before = self.given_to(stream);
        let id = self.add(before, None, false);
        self.barrier = Some(id);
    }

    /// Adds work for which all later work waits. `all`: it waits for all earlier work; otherwise only for
    /// earlier work that was added like this.
    pub(crate) fn between(&mut self, all: bool, job: J) {
        let before = if all { self.all() } else { Vec::new() };
        let id = self.add(before, Some(job), true);
        self.barrier = Some(id);
    }

    /// Starts a group: work of a stream in pieces that have an order of their own.
    pub(crate) fn group(&mut self, stream: Stream, after: Option<Id>) -> Group {
        let mut before = self.before(stream);
        before.extend(after);
        let start = self.add(before, None, false);
        Group { stream, start, pieces: Vec::new(), leaves: BTreeSet::new() }
    }

    /// Adds a piece of a group behind earlier pieces, which are named by their indices, and behind the newest
    /// record of `event`.
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

    /// Notes that a piece of a group is the record of an event.
    pub(crate) fn set_record(&mut self, event: u32, id: Id) {
        self.records.insert(event, id);
    }

    /// Ends a group: the stream goes on behind all of it. Returns the node of its end.
    pub(crate) fn end_group(&mut self, group: Group) -> Id {
        let Group { stream, start, leaves, .. } = group;
        let id = self.add(leaves.into_iter().chain([start]), None, false);
        self.set_tail(stream, id);
        id
    }

    /// Starts a node that is ready. Returns its work.
    pub(crate) fn begin(&mut self, id: Id) -> Option<J> {
        self.ready.remove(&id).then(|| self.nodes.get_mut(&id)?.job.take()).flatten()
    }

    /// Notes that a node is done that was started.
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

    /// The ready work that must be done before something can be for which somebody waits.
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
    /// Pieces behind which there is no other.
    leaves: BTreeSet<Id>,
}

#[cfg(test)]
mod tests;
