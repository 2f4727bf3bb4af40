//! The order in which work may be carried out: CUDA's rules, as a graph of dependencies. It knows nothing
//! about the work itself.
//!
//! * The work of one stream is done in the order in which it was given.
//! * Stream 0 waits for the earlier work of all blocking streams, and their later work waits for it.
//! * A stream that waits for an event waits for the record of the event that is the newest at that moment.
//! * After a join all later work, on any stream, waits for what the joined stream had been given.
//!
//! A node without a job is completed as soon as all nodes before it are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The number of a node. Later nodes have greater numbers.
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
struct OrderNode<J> {
    /// The job, which is taken when it is started.
    job: Option<J>,
    /// The nodes that this one was ordered after when it was added.
    before: Vec<Id>,
    /// Number of nodes before this one that are not completed.
    waits: usize,
    /// The nodes that are ordered after this one.
    after: Vec<Id>,
    /// The stream whose newest node this may be.
    stream: Option<u32>,
    /// Whether the guest can see that it has completed, so that an adversary must not delay it forever.
    demanded: bool,
}

/// Represents all nodes of a set of streams, so that a node ordered after all of them need not name each
/// stream. Each node is named only once, however often this is used.
#[derive(Debug, Default)]
struct Gather {
    /// A node that is ordered after all nodes of the set, except those of the streams in `fresh`.
    node: Option<Id>,
    /// Streams that have newer nodes which are not completed.
    fresh: BTreeSet<u32>,
}

/// Up to this number of streams are named one by one, because a node for them would cost more.
const NAMED_MOST: usize = 4;

/// Nodes that are not completed, and their order.
#[derive(Debug)]
pub(crate) struct Order<J> {
    next: Id,
    /// The nodes, by id. They are in a tree, because it grows in small steps. A hash table would temporarily
    /// need twice its size, for which the host may not have memory.
    nodes: BTreeMap<Id, OrderNode<J>>,
    /// Nodes whose job has not started and before which all nodes are completed.
    ready: BTreeSet<Id>,
    /// Demanded nodes that are not completed.
    demanded: BTreeSet<Id>,
    /// The newest work of each stream.
    tails: HashMap<u32, Id>,
    /// Represents the nodes of all streams.
    all: Gather,
    blocking: Gather,
    /// A node that all new nodes are ordered after.
    barrier: Option<Id>,
    /// The newest record of each event, until it is completed.
    records: HashMap<u32, Id>,
    /// Number of dependencies that were added.
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
    /// Returns the number of nodes that are not completed.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the nodes that may start, oldest first.
    pub(crate) const fn ready(&self) -> &BTreeSet<Id> {
        &self.ready
    }

    /// Returns the nodes whose completion is visible outside of the order.
    pub(crate) const fn demanded(&self) -> &BTreeSet<Id> {
        &self.demanded
    }

    /// Adds a node that is ordered after others. Completed nodes are ignored.
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
                // The node is completed already.
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
        self.nodes.insert(id, OrderNode { job, before, waits, after: Vec::new(), stream: None, demanded });
        id
    }

    /// Makes a node the newest of a stream, so that later work of the stream is ordered after it. Does
    /// nothing if the node is completed.
    fn set_tail(&mut self, stream: Stream, id: Id) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.stream = Some(stream.number);
            self.tails.insert(stream.number, id);
            self.all.fresh.insert(stream.number);
            if stream.blocking {
                self.blocking.fresh.insert(stream.number);
            } else {
                self.blocking.fresh.remove(&stream.number);
            }
        }
    }

    /// Returns at most `NAMED_MOST + 1` nodes that represent all nodes of a set of streams. Adds a node that
    /// gathers the others if there would be more.
    fn gather(&mut self, set: impl Fn(&mut Self) -> &mut Gather) -> Vec<Id> {
        let Gather { node, fresh } = set(self);
        let (node, fresh) = (*node, fresh.clone());
        let tails = fresh.iter().filter_map(|stream| self.tails.get(stream).copied());
        let before: Vec<Id> = tails.chain(node).collect();
        if fresh.len() <= NAMED_MOST {
            return before;
        }
        let id = self.add(before, None, false);
        *set(self) = Gather { node: Some(id), fresh: BTreeSet::new() };
        vec![id]
    }

    /// Returns the nodes that the next work of a stream is ordered after.
    fn before(&mut self, stream: Stream) -> Vec<Id> {
        if stream.number == 0 {
            return self.gather(|order| &mut order.blocking);
        }
        let own = self.tails.get(&stream.number);
        let default = self.tails.get(&0).filter(|_| stream.blocking);
        own.into_iter().chain(default).copied().collect()
    }

    /// Returns the nodes that represent all work of a stream. For stream 0 this includes all blocking
    /// streams.
    fn given(&mut self, stream: Stream) -> Vec<Id> {
        if stream.number == 0 {
            return self.before(stream);
        }
        self.tails.get(&stream.number).copied().into_iter().collect()
    }

    /// Returns the nodes that represent the work of all streams.
    fn all(&mut self) -> Vec<Id> {
        self.gather(|order| &mut order.all)
    }

    /// Returns the nodes that represent all work of a stream, or of all streams.
    fn given_to(&mut self, stream: Option<Stream>) -> Vec<Id> {
        match stream {
            Some(stream) => self.given(stream),
            None => self.all(),
        }
    }

    /// Adds work of a stream, ordered after the stream's earlier work.
    pub(crate) fn push(&mut self, stream: Stream, job: J, demanded: bool) -> Id {
        let before = self.before(stream);
        let id = self.add(before, Some(job), demanded);
        self.set_tail(stream, id);
        id
    }

    /// Adds the record of an event to a stream. It is the newest record from now on.
    pub(crate) fn record(&mut self, stream: Stream, event: u32, job: J) {
        let id = self.push(stream, job, true);
        self.records.insert(event, id);
    }

    /// Orders later work of a stream after the newest record of an event.
    pub(crate) fn wait(&mut self, stream: Stream, event: u32) {
        let mut before = self.before(stream);
        before.extend(self.records.get(&event));
        let id = self.add(before, None, false);
        self.set_tail(stream, id);
    }

    /// Removes an event, so that its number can be reused.
    pub(crate) fn forget(&mut self, event: u32) {
        self.records.remove(&event);
    }

    /// Adds work that is ordered after all work of a stream, or of all streams. No later work is ordered
    /// after it.
    pub(crate) fn after(&mut self, stream: Option<Stream>, job: J) {
        let before = self.given_to(stream);
        self.add(before, Some(job), true);
    }

    /// Orders all later work after the present work of a stream, or of all streams.
    pub(crate) fn join(&mut self, stream: Option<Stream>) {
        let before = self.given_to(stream);
        let id = self.add(before, None, false);
        self.barrier = Some(id);
    }

    /// Adds work that all later work is ordered after. With `all`, it is ordered after all earlier work;
    /// otherwise only after earlier work that was added by this function or by a join.
    pub(crate) fn between(&mut self, all: bool, job: J) {
        let before = if all { self.all() } else { Vec::new() };
        let id = self.add(before, Some(job), true);
        self.barrier = Some(id);
    }

    /// Starts a group: work of a stream whose parts have an order of their own.
    pub(crate) fn group(&mut self, stream: Stream, after: Option<Id>) -> TaskGroup {
        let mut before = self.before(stream);
        before.extend(after);
        let start = self.add(before, None, false);
        TaskGroup { stream, start, pieces: Vec::new(), leaves: BTreeSet::new() }
    }

    /// Adds a part of a group. It is ordered after earlier parts, which are named by their indices, and after
    /// the newest record of `event`.
    pub(crate) fn piece(
        &mut self,
        group: &mut TaskGroup,
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

    /// Records that a part of a group is the newest record of an event.
    pub(crate) fn set_record(&mut self, event: u32, id: Id) {
        self.records.insert(event, id);
    }

    /// Ends a group. Later work of the stream is ordered after all of it. Returns the node of its end.
    pub(crate) fn end_group(&mut self, group: TaskGroup) -> Id {
        let TaskGroup { stream, start, leaves, .. } = group;
        let id = self.add(leaves.into_iter().chain([start]), None, false);
        self.set_tail(stream, id);
        id
    }

    /// Starts a node that is ready. Returns its job, or `None` if it is not ready.
    pub(crate) fn begin(&mut self, id: Id) -> Option<J> {
        self.ready.remove(&id).then(|| self.nodes.get_mut(&id)?.job.take()).flatten()
    }

    /// Completes a node that was started.
    pub(crate) fn finish(&mut self, id: Id) {
        let mut done = vec![id];
        while let Some(id) = done.pop() {
            let Some(node) = self.nodes.remove(&id) else { continue };
            if node.demanded {
                self.demanded.remove(&id);
            }
            if let Some(stream) = node.stream
                && self.tails.get(&stream).is_some_and(|&tail| tail == id)
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

    /// Returns the ready nodes that a demanded node depends on.
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

/// Work of a stream in parts that have an order of their own, while parts are added.
#[derive(Debug)]
pub(crate) struct TaskGroup {
    stream: Stream,
    start: Id,
    pieces: Vec<Id>,
    /// Parts that no other part is ordered after.
    leaves: BTreeSet<Id>,
}

#[cfg(test)]
mod tests;
