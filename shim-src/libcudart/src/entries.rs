//! Kernels and variables in two forms: a [`Log`], to which a registration only appends, and [`Gathered`]
//! lists, in which addresses are found.
//!
//! A start of GGML registers 8,430 kernels and variables and looks up none. So a registration takes no lock,
//! reads nothing through its pointers and sorts nothing. The log is emptied into the lists when an address is
//! looked up.

use core::ffi::c_char;

/// Number of entries that the log has room for after the first registration. Memory that is not written to
/// costs nothing.
const ROOM: usize = 16 << 10;

/// The list of a fat binary that an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// The list of the fat binary's kernels.
    Functions,
    /// The list of the fat binary's variables.
    Variables,
}

/// Entries that were registered since the last lookup, in the order of registration.
pub struct Log(Vec<(List, Entry)>);

impl Log {
    /// Returns a log without entries.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends an entry.
    #[inline]
    pub fn append(&mut self, list: List, entry: Entry) {
        if self.0.capacity() == 0 {
            self.0.reserve_exact(ROOM);
        }
        self.0.push((list, entry));
    }

    /// Removes and returns all entries.
    pub fn drain(&mut self) -> impl Iterator<Item = (List, Entry)> {
        core::mem::take(&mut self.0).into_iter()
    }
}

/// A registered kernel or variable.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Address of the host stub or host variable.
    pub host: usize,
    /// Name in the device code, with a zero at its end.
    pub name: *const c_char,
    /// Index of the fat binary that contains it.
    pub fatbin: u32,
}

/// A list of entries, which is sorted when it is first searched.
pub struct Entries {
    list: Vec<Entry>,
    sorted: bool,
}

impl Entries {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self { list: Vec::new(), sorted: true }
    }

    /// Appends an entry.
    pub fn add(&mut self, entry: Entry) {
        self.list.push(entry);
        self.sorted = false;
    }

    /// Removes the entries of fat binaries that are no longer registered. `is_registered` receives the number
    /// of each.
    pub fn sweep(&mut self, is_registered: impl Fn(u32) -> bool) {
        self.list.retain(|entry| is_registered(entry.fatbin));
    }

    /// Returns the entry with the address of a host stub or host variable. Sorts the list first if entries
    /// were added.
    pub fn find(&mut self, host: usize) -> Option<&Entry> {
        if !self.sorted {
            self.list.sort_unstable_by_key(|entry| entry.host);
            self.sorted = true;
        }
        let index = self.list.binary_search_by_key(&host, |entry| entry.host).ok()?;
        Some(&self.list[index])
    }
}

/// Registered kernels and variables, found by their host addresses.
pub struct Gathered {
    /// The kernels, by the addresses of their host stubs.
    pub functions: Entries,
    /// The variables, by the addresses of their host variables.
    pub variables: Entries,
}

impl Gathered {
    /// Creates two empty lists.
    pub const fn new() -> Self {
        Self { functions: Entries::new(), variables: Entries::new() }
    }

    /// Adds an entry to one of the lists.
    pub fn add(&mut self, list: List, entry: Entry) {
        match list {
            List::Functions => self.functions.add(entry),
            List::Variables => self.variables.add(entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(host: usize, fatbin: u32) -> Entry {
        Entry { host, name: c"name".as_ptr(), fatbin }
    }

    #[test]
    fn entries_are_found_whatever_their_order() {
        let mut entries = Entries::new();
        for host in [7, 3, 9, 1] {
            entries.add(entry(host, host as u32));
        }
        for host in [1, 3, 7, 9] {
            assert_eq!(entries.find(host).map(|entry| entry.fatbin), Some(host as u32));
        }
        entries.add(entry(2, 2));
        assert_eq!(entries.find(2).map(|entry| entry.fatbin), Some(2));
        assert!(entries.find(8).is_none());
    }

    #[test]
    fn what_belongs_to_a_fatbin_goes_with_it() {
        let mut entries = Entries::new();
        entries.add(entry(16, 0));
        entries.add(entry(32, 1));
        entries.sweep(|fatbin| fatbin == 1);
        assert!(entries.find(16).is_none());
        assert!(entries.find(32).is_some());
    }
}
