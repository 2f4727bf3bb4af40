//! Kernels and variables as they are registered, and as they are looked up: the form that costs a start the
//! least, and the form in which an address is found.
//!
//! A start of GGML registers 8,430 of them and asks for none. What costs then is fresh memory - the kernel
//! takes two microseconds to give a page - and the calls themselves. So an entry is written as how far its
//! two addresses are from those of the entry before, which a compiler lays out next to each other: nine in
//! ten take four bytes. A [`Log`] of them is read once, when the first address is asked for, into
//! [`Gathered`].
//!
//! ```text
//!   bit       31  30      29 ... 13                           12 ... 0
//!   entry      0  list    (host - last host) / 16 + 0x10000   name - last name + 0x1000
//!   far entry  1  list    0                                   two words follow: host - last host, name - last name
//!   fatbin     1  0       1                                   a word follows: its index
//! ```
//! The entries behind a fatbin's record are that fatbin's; both "last" are its image at first.

use core::ffi::{c_char, c_void};
use core::ptr;

/// Words of a chunk, 64 KiB. What is not written to is never given by the kernel.
const CHUNK: usize = 16 << 10;
/// The most words that a record has.
const RECORD: usize = 3;
/// Bit of records that are no near entry.
const FAR: u32 = 1 << 31;
/// Where an entry has its list.
const LIST: u32 = 30;
/// The record that begins a fatbin.
const FATBIN: u32 = FAR | 1 << 13;
/// What a near entry adds to the distance of its host, a multiple of [`STEP`], and how many values that
/// leaves.
const HOST_BIAS: usize = 1 << 20;
const STEP: usize = 16;
/// What it adds to the distance of its name.
const NAME_BIAS: usize = 1 << 12;
/// Where it has the distance of its host, of 17 bits.
const HOST: u32 = 13;

/// Which of a fatbin's two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// The list of kernels.
    Functions,
    /// The list of variables.
    Variables,
}

/// What was registered and not asked for yet.
pub struct Log {
    /// Where the next record goes: between the start and the end of the newest chunk, or null as long as
    /// there is none.
    cursor: *mut u32,
    /// Behind this the newest chunk has no room for another record.
    last: *mut u32,
    host: usize,
    name: usize,
    chunks: Vec<Chunk>,
}

/// Memory for records.
struct Chunk {
    memory: Box<[core::mem::MaybeUninit<u32>]>,
    /// Words written; told when the chunk is full, for the newest by the cursor.
    used: usize,
}

impl Log {
    /// A log of nothing.
    pub const fn new() -> Self {
        Self { cursor: ptr::null_mut(), last: ptr::null_mut(), host: 0, name: 0, chunks: Vec::new() }
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether there is no room for another record.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.cursor >= self.last
    }

    /// Notes an entry of the fatbin that was begun last. False: there is no room ([`Log::is_full`]), or it is
    /// farther from the entry before than two addresses of an object are.
    #[inline]
    pub fn note(&mut self, list: List, host: usize, name: usize) -> bool {
        let cursor = self.cursor;
        if self.is_full() {
            return false;
        }
        let (hosts, names) = (host.wrapping_sub(self.host), name.wrapping_sub(self.name));
        let list = (list as u32) << LIST;
        let (near_host, near_name) = (hosts.wrapping_add(HOST_BIAS), names.wrapping_add(NAME_BIAS));
        let words = if near_host & !(2 * HOST_BIAS - STEP) | near_name & !(2 * NAME_BIAS - 1) == 0 {
            let word = list | (((near_host / STEP) << HOST) | near_name) as u32;
            // SAFETY: the cursor lies in a chunk and before `last`, so that there is room for a record.
            unsafe { cursor.write(word) };
            1
        } else {
            let (Ok(hosts), Ok(names)) = (i32::try_from(hosts as isize), i32::try_from(names as isize))
            else {
                return false;
            };
            // SAFETY: as above; a record is three words.
            unsafe { cursor.cast::<[u32; 3]>().write([FAR | list, hosts as u32, names as u32]) };
            3
        };
        // SAFETY: as above.
        self.cursor = unsafe { cursor.add(words) };
        self.host = host;
        self.name = name;
        true
    }

    /// The entries from now on are those of the fatbin with this index and image. Where its record lies, by
    /// which it is told from another fatbin that has the index later.
    pub fn begin(&mut self, index: u32, image: usize) -> *const u32 {
        if self.is_full() {
            self.grow();
        }
        let place = self.cursor;
        // SAFETY: as in `note`: there is room for a record.
        unsafe { place.cast::<[u32; 2]>().write([FATBIN, index]) };
        // SAFETY: as above.
        self.cursor = unsafe { place.add(2) };
        (self.host, self.name) = (image, image);
        place
    }

    /// Makes room for more records.
    #[cold]
    pub fn grow(&mut self) {
        let used = self.used();
        if let Some(full) = self.chunks.last_mut() {
            full.used = used;
        }
        let mut memory = Box::new_uninit_slice(CHUNK);
        self.cursor = memory.as_mut_ptr().cast();
        // From here on fewer words than a record are left.
        self.last = self.cursor.wrapping_add(CHUNK - RECORD + 1);
        self.chunks.push(Chunk { memory, used: 0 });
    }

    /// Words written to the newest chunk.
    fn used(&self) -> usize {
        let bytes = self.chunks.last().map_or(0, |chunk| self.cursor.addr() - chunk.memory.as_ptr().addr());
        bytes / size_of::<u32>()
    }

    /// Calls `fatbin` for each record that begins one, with its index and place, which answers the image, or
    /// `None` if the entries behind it are nobody's any more; and `entry` for each entry with its list, its
    /// two addresses and its fatbin's index. Then the log is empty.
    pub fn drain(
        &mut self,
        mut fatbin: impl FnMut(u32, *const u32) -> Option<*const c_void>,
        mut entry: impl FnMut(List, Entry),
    ) {
        let used = self.used();
        let mut of: Option<(u32, *const c_void)> = None;
        let (mut host, mut name) = (0, 0);
        let log = core::mem::replace(self, Self::new());
        let newest = log.chunks.len().wrapping_sub(1);
        for (at, chunk) in log.chunks.iter().enumerate() {
            let used = if at == newest { used } else { chunk.used };
            // SAFETY: the first `used` words of the chunk were written, and nobody writes to it any more.
            let words = unsafe { core::slice::from_raw_parts(chunk.memory.as_ptr().cast::<u32>(), used) };
            let mut words = words.iter();
            let far = |word: Option<&u32>| word.map_or(0, |&word| word.cast_signed() as isize);
            while let Some(record) = words.next() {
                let word = *record;
                if word == FATBIN {
                    let index = words.next().copied().unwrap_or_default();
                    of = fatbin(index, record).map(|image| (index, image));
                    let image = of.map_or(0, |(_, image)| image.addr());
                    (host, name) = (image, image);
                    continue;
                }
                let (hosts, names) = if word & FAR == 0 {
                    let (hosts, names) = (word >> HOST & 0x1_ffff, word & 0x1fff);
                    let bias =
                        |number: u32, unit: usize, bias: usize| (number as usize * unit).wrapping_sub(bias);
                    (bias(hosts, STEP, HOST_BIAS) as isize, bias(names, 1, NAME_BIAS) as isize)
                } else {
                    (far(words.next()), far(words.next()))
                };
                host = host.wrapping_add_signed(hosts);
                name = name.wrapping_add_signed(names);
                if let Some((fatbin, image)) = of {
                    let list = if word >> LIST & 1 == 0 { List::Functions } else { List::Variables };
                    // In the object that the image is in, or wherever the program pointed.
                    let name = image.cast::<c_char>().with_addr(name);
                    entry(list, Entry { host, name, fatbin });
                }
            }
        }
    }
}

/// A kernel or a variable: its stand-in's address, its name, the index of its fatbin.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The stand-in's address.
    pub host: usize,
    /// The name in the device code, ended by zero.
    pub name: *const c_char,
    /// The fatbin's index.
    pub fatbin: u32,
}

/// Entries, sorted when they are first searched.
pub struct Entries {
    list: Vec<Entry>,
    sorted: bool,
}

impl Entries {
    /// A list without entries.
    pub const fn new() -> Self {
        Self { list: Vec::new(), sorted: true }
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: Entry) {
        self.list.push(entry);
        self.sorted = false;
    }

    /// Keeps those whose fatbin `is` there.
    pub fn sweep(&mut self, is: impl Fn(u32) -> bool) {
        self.list.retain(|entry| is(entry.fatbin));
    }

    /// That of a stand-in.
    pub fn find(&mut self, host: usize) -> Option<&Entry> {
        if !self.sorted {
            self.list.sort_unstable_by_key(|entry| entry.host);
            self.sorted = true;
        }
        let index = self.list.binary_search_by_key(&host, |entry| entry.host).ok()?;
        Some(&self.list[index])
    }
}

/// What there is, by address of its stand-in.
pub struct Gathered {
    /// The kernels, by the address of the host function that stands for each.
    pub functions: Entries,
    /// The variables, by the address of the host variable that stands for each.
    pub variables: Entries,
}

impl Gathered {
    /// No kernels and no variables.
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
    use proptest::prelude::*;

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

    /// A variable or not, its host, its name.
    type Registered = (bool, usize, usize);

    /// Writes fatbins, each an image and its entries, and reads back: the entries with their fatbin's index.
    fn through(fatbins: &[(usize, Vec<Registered>)]) -> Vec<(bool, usize, usize, u32)> {
        let mut log = Log::new();
        let mut places = Vec::new();
        for (index, (image, entries)) in fatbins.iter().enumerate() {
            places.push(log.begin(index as u32, *image));
            for &(variable, host, name) in entries {
                let list = if variable { List::Variables } else { List::Functions };
                if !log.note(list, host, name) {
                    assert!(log.is_full());
                    log.grow();
                    assert!(log.note(list, host, name));
                }
            }
        }
        let mut back = Vec::new();
        log.drain(
            |index, place| {
                assert_eq!(place, places[index as usize]);
                Some(ptr::without_provenance(fatbins[index as usize].0))
            },
            |list, entry| back.push((list == List::Variables, entry.host, entry.name.addr(), entry.fatbin)),
        );
        assert!(log.is_empty());
        back
    }

    #[test]
    fn an_entry_of_usual_distances_takes_a_word() {
        let image = 1 << 40;
        let mut log = Log::new();
        log.begin(0, image);
        let begun = log.used();
        assert!(log.note(List::Functions, image + 16 * 0xffff, image + 4095));
        assert!(log.note(List::Variables, image - 16, image - 1));
        assert_eq!(log.used() - begun, 2);
        assert!(log.note(List::Variables, image - 8, image - 1));
        assert_eq!(log.used() - begun, 5, "a stand-in that is not aligned");
        assert!(!log.note(List::Variables, image + (1 << 32), image) && !log.is_full());
        assert_eq!(log.used() - begun, 5, "too far for any");
    }

    #[test]
    fn a_log_of_several_chunks_keeps_its_order() {
        let entries: Vec<_> =
            (0..40_000).map(|i| (i % 5 == 0, 0x7000_0000 + i * 304, 0x5000_0000 - i * 90)).collect();
        let back = through(&[(0x6000_0000, entries.clone())]);
        assert_eq!(
            back,
            entries.into_iter().map(|(list, host, name)| (list, host, name, 0)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_fatbin_that_is_gone_takes_its_entries_along() {
        let mut log = Log::new();
        for index in 0..3 {
            log.begin(index, 0x1000);
            assert!(log.note(List::Functions, 0x2000 + index as usize, 0x3000));
        }
        let mut hosts = Vec::new();
        let image = ptr::without_provenance(0x1000);
        log.drain(|index, _| (index != 1).then_some(image), |_, entry| hosts.push(entry.host));
        assert_eq!(hosts, [0x2000, 0x2002]);
    }

    /// A number of any size below 2^31.
    fn below() -> impl Strategy<Value = usize> {
        (0_u32..31, any::<u32>()).prop_map(|(bits, number)| (number & ((1 << bits) - 1)) as usize)
    }

    proptest! {
        #[test]
        fn what_is_noted_comes_back(
            fatbins in prop::collection::vec(
                (0_usize..1 << 47, prop::collection::vec((any::<bool>(), below(), below()), 0..40)), 0..6)
        ) {
            // Near and far from each other, but within two GiB as in an object.
            let fatbins: Vec<_> = fatbins.into_iter().map(|(image, entries)| {
                let at = |distance: usize| image.wrapping_add(distance);
                (image, entries.into_iter().map(|(list, host, name)| (list, at(host), at(name))).collect::<Vec<_>>())
            }).collect();
            let expected: Vec<_> = fatbins.iter().enumerate().flat_map(|(index, (_, entries))| {
                entries.iter().map(move |&(list, host, name)| (list, host, name, index as u32))
            }).collect();
            prop_assert_eq!(through(&fatbins), expected);
        }
    }
}
