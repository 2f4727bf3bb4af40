//! Admission of clients to a mediator's socket. The number of clients is limited, in all and for each user.
//! At a limit, the client that has been idle longest, among those that own nothing, is disconnected. So idle
//! clients lock nobody out, and one user's clients cannot lock out those of another user.

use std::collections::HashMap;
use std::time::Instant;

/// Largest number of clients at a time.
pub const CLIENTS_MAX: usize = 256;
/// Largest number of clients of one user at a time.
pub const USER_CLIENTS_MAX: usize = 64;

/// What the decision about a new client needs to know of a connected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    /// User of the client's process.
    pub(super) user: u32,
    /// Time at which the client became idle, or `None` while it has a call in progress, or if its machine has
    /// owners that a disconnection would end.
    pub(super) idle_since: Option<Instant>,
}

/// Decision about one more client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// There is room for the client.
    Room,
    /// There is room once this client is disconnected.
    InPlaceOf(u64),
    /// There is no room, and no client can be disconnected for it.
    None,
}

/// Decides whether one more client of `user` is accepted beside the connected ones, which are given by their
/// ids.
pub(super) fn admit(clients: &HashMap<u64, Client>, user: u32) -> Admission {
    let of_user = clients.values().filter(|client| client.user == user).count();
    let own_alone = of_user >= USER_CLIENTS_MAX;
    if !own_alone && clients.len() < CLIENTS_MAX {
        return Admission::Room;
    }
    let idle = clients.iter().filter(|(_, client)| !own_alone || client.user == user);
    let longest = idle.filter_map(|(id, client)| Some((client.idle_since?, *id))).min();
    longest.map_or(Admission::None, |(_, id)| Admission::InPlaceOf(id))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Creates `count` clients of a user. The first of them has been idle longest.
    fn clients(count: usize, user: u32, first: u64, idle: bool) -> HashMap<u64, Client> {
        let start = Instant::now();
        let since = |id: u64| idle.then(|| start + Duration::from_secs(id));
        (first..).take(count).map(|id| (id, Client { user, idle_since: since(id) })).collect()
    }

    #[test]
    fn idle_clients_make_room_the_longest_idle_first() {
        let mut all = clients(USER_CLIENTS_MAX, 7, 100, true);
        assert_eq!(admit(&all, 8), Admission::Room, "another user's");
        assert_eq!(admit(&all, 7), Admission::InPlaceOf(100));
        all.insert(100, Client { user: 7, idle_since: None });
        assert_eq!(admit(&all, 7), Admission::InPlaceOf(101), "the first is busy");
        all.remove(&105);
        assert_eq!(admit(&all, 7), Admission::Room);
    }

    #[test]
    fn a_users_clients_lock_out_no_other_users() {
        let busy = clients(USER_CLIENTS_MAX, 7, 0, false);
        assert_eq!(admit(&busy, 7), Admission::None);
        assert_eq!(admit(&busy, 8), Admission::Room);
        let mut all = HashMap::new();
        for user in 0..(CLIENTS_MAX / USER_CLIENTS_MAX) as u32 {
            all.extend(clients(USER_CLIENTS_MAX, user, u64::from(user) * 1000, user == 2));
        }
        assert_eq!(all.len(), CLIENTS_MAX);
        assert_eq!(admit(&all, 99), Admission::InPlaceOf(2000), "several users filled it");
        assert_eq!(admit(&all, 1), Admission::None, "who has enough makes nobody else's go");
    }
}
