//! Kernels and variables as they are registered, and as they are looked up.
//!
//! A start of GGML registers 8,430 of them and asks for none. So registering appends to a [`Log`], and the first
//! question for an address moves the log into [`Gathered`], whose lists are sorted when they are searched.

use core::ffi::c_char;

/// Entries that the log has room for from the start. Memory that is not written to costs nothing.
const ROOM: usize = 16 << 10;

/// Which of a fatbin's two lists an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// The list of kernels.
    Functions,
    /// The list of variables.
    Variables,
}

/// What was registered and not asked for yet, in the order of registration.
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
    /// Address of the stand-in in the host program.
    pub host: usize,
    /// The name in the device code, ended by zero.
    pub name: *const c_char,
    /// Number of the fatbin whose code it is in.
    pub fatbin: u32,
}

/// Entries, sorted when they are first searched.
pub struct Entries {
    list: Vec<Entry>,
    sorted: bool,
}

impl Entries {
    /// Returns a list without entries.
    pub const fn new() -> Self {
        Self { list: Vec::new(), sorted: true }
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: Entry) {
        self.list.push(entry);
        self.sorted = false;
    }

    /// Keeps the entries of fatbins that are still registered.
    pub fn sweep(&mut self, is_registered: impl Fn(u32) -> bool) {
        self.list.retain(|entry| is_registered(entry.fatbin));
    }

    /// Returns the entry of a stand-in, by its address.
    pub fn find(&mut self, host: usize) -> Option<&Entry> {
        if !self.sorted {
            self.list.sort_unstable_by_key(|entry| entry.host);
            self.sorted = true;
        }
        let index = self.list.binary_search_by_key(&host, |entry| entry.host).ok()?;
        Some(&self.list[index])
    }
}

/// All entries, by the address of the stand-in.
pub struct Gathered {
    /// The kernels, by the address of the host function that stands for each.
    pub functions: Entries,
    /// The variables, by the address of the host variable that stands for each.
    pub variables: Entries,
}

impl Gathered {
    /// Returns two empty lists.
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
