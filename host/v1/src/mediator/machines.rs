//! Machines: how many connections and owners each has, and until when it may reconnect.
//!
//! A machine whose last connection has ended keeps its owners for a while, because a hypervisor's device
//! reconnects after the mediator has refused a call. Then its owners end, so that a machine that is gone
//! holds nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Identifies a machine among those of all users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MachineId {
    /// User of the process that is connected for the machine. Another user's process cannot pose as the same
    /// machine.
    pub(super) user: u32,
    /// The `vm_id` in the machine's frames.
    pub(super) vm: u32,
}

#[derive(Debug, Default)]
struct KnownMachine {
    connections: usize,
    /// Number of owners, including those that are being ended.
    owners: usize,
    /// Time at which the machine's owners end, set while it has no connection.
    until: Option<Instant>,
}

/// All machines that have a connection or an owner.
#[derive(Debug)]
pub(super) struct Machines {
    grace: Duration,
    owners_most: usize,
    known: HashMap<MachineId, KnownMachine>,
}

impl Machines {
    /// Creates an empty table. `grace` is how long a machine without a connection keeps its owners, and
    /// `owners_most` is the largest number of owners of a machine.
    pub(super) fn new(grace: Duration, owners_most: usize) -> Self {
        Self { grace, owners_most, known: HashMap::new() }
    }

    /// Counts a new connection of a machine, which ends its grace period.
    pub(super) fn connected(&mut self, machine: MachineId) {
        let known = self.known.entry(machine).or_default();
        known.connections += 1;
        known.until = None;
    }

    /// Counts the end of a connection of a machine. If it was the last one, the grace period starts at `now`.
    pub(super) fn disconnected(&mut self, machine: MachineId, now: Instant) {
        if let Some(known) = self.known.get_mut(&machine) {
            known.connections -= 1;
            if known.connections == 0 {
                known.until = now.checked_add(self.grace);
            }
        }
        self.forget(machine);
    }

    /// Counts one more owner. Returns false if the machine has too many, or no connection any more.
    pub(super) fn add_owner(&mut self, machine: MachineId) -> bool {
        let Some(known) = self.known.get_mut(&machine) else { return false };
        let room = known.connections > 0 && known.owners < self.owners_most;
        known.owners += usize::from(room);
        room
    }

    /// Counts the end of an owner, once everything it had is freed.
    pub(super) fn remove_owner(&mut self, machine: MachineId) {
        if let Some(known) = self.known.get_mut(&machine) {
            known.owners -= 1;
        }
        self.forget(machine);
    }

    /// Returns whether a machine has an owner.
    pub(super) fn owns(&self, machine: MachineId) -> bool {
        self.known.get(&machine).is_some_and(|known| known.owners > 0)
    }

    /// Returns the machines whose grace period has ended by `now`, each of them once.
    pub(super) fn due(&mut self, now: Instant) -> Vec<MachineId> {
        let over = |known: &mut KnownMachine| known.until.take_if(|until| *until <= now).is_some();
        self.known.iter_mut().filter_map(|(machine, known)| over(known).then_some(*machine)).collect()
    }

    /// Returns the earliest end of a machine's grace period, or `None` if all machines are connected.
    pub(super) fn next(&self) -> Option<Instant> {
        self.known.values().filter_map(|known| known.until).min()
    }

    fn forget(&mut self, machine: MachineId) {
        if self.known.get(&machine).is_some_and(|known| known.connections == 0 && known.owners == 0) {
            self.known.remove(&machine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: MachineId = MachineId { user: 0, vm: 1 };
    const GRACE: Duration = Duration::from_mins(1);

    #[test]
    fn what_a_machine_has_ends_a_while_after_its_last_connection() {
        let mut machines = Machines::new(GRACE, 64);
        let start = Instant::now();
        machines.connected(ONE);
        machines.connected(ONE);
        assert!(machines.add_owner(ONE));
        machines.disconnected(ONE, start);
        assert_eq!(machines.next(), None, "it has another connection");
        machines.disconnected(ONE, start);
        assert_eq!(machines.next(), Some(start + GRACE));
        assert!(!machines.add_owner(ONE), "nobody speaks for it");
        assert_eq!(machines.due(start + Duration::from_secs(59)), []);
        // It reconnects in time, and disconnects again.
        machines.connected(ONE);
        assert_eq!((machines.next(), machines.due(start + 2 * GRACE)), (None, vec![]));
        machines.disconnected(ONE, start + GRACE);
        assert_eq!(machines.due(start + 2 * GRACE), [ONE]);
        assert_eq!(machines.due(start + 2 * GRACE), [], "once");
        assert!(machines.owns(ONE), "until its owners have ended");
        machines.remove_owner(ONE);
        assert!(machines.known.is_empty());
    }

    #[test]
    fn a_machine_has_so_many_owners_and_others_have_theirs() {
        let mut machines = Machines::new(GRACE, 2);
        let other = MachineId { user: 1, vm: 1 };
        assert!(!machines.add_owner(ONE), "it has not come");
        machines.connected(ONE);
        machines.connected(other);
        assert!(machines.add_owner(ONE) && machines.add_owner(ONE) && !machines.add_owner(ONE));
        assert!(machines.add_owner(other), "another user's is another machine");
        machines.remove_owner(ONE);
        assert!(machines.add_owner(ONE));
    }

    #[test]
    fn a_grace_without_end_never_ends() {
        let mut machines = Machines::new(Duration::MAX, 1);
        machines.connected(ONE);
        assert!(machines.add_owner(ONE));
        machines.disconnected(ONE, Instant::now());
        assert_eq!(machines.next(), None);
    }
}
