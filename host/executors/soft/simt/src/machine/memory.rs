//! Shared memory of a block and local memory of a warp. Both are ordinary memory of the thread that runs the
//! block.

use vgpu_arena::Element;

use super::slot::LANES;

/// Maximum shared memory of a block in words. It is 256 KiB, more than on any GPU.
pub(crate) const SHARED_WORDS: usize = 1 << 16;
/// Maximum shared memory of a block in bytes.
pub(crate) const SHARED_BYTES: u32 = SHARED_WORDS as u32 * 4;

/// Memory in words of 32 bits. Narrower elements are parts of words, and elements of 64 bits are two words.
pub(crate) trait Words {
    fn word(&self, index: u32) -> u32;
    fn set_word(&mut self, index: u32, value: u32);

    /// Reads an element at a byte address that is aligned to its size.
    #[inline(always)]
    fn read<T: Element>(&self, address: u32) -> T {
        let word = self.word(address / 4);
        let mut value = T::default();
        let bytes = value.as_mut_bytes();
        match bytes.len() {
            8 => {
                bytes[..4].copy_from_slice(&word.to_le_bytes());
                bytes[4..].copy_from_slice(&self.word(address / 4 + 1).to_le_bytes());
            }
            4 => bytes.copy_from_slice(&word.to_le_bytes()),
            size => {
                let part = word >> (8 * (address % 4));
                bytes.copy_from_slice(&part.to_le_bytes()[..size]);
            }
        }
        value
    }

    /// Writes an element at a byte address that is aligned to its size.
    #[inline(always)]
    fn write<T: Element>(&mut self, address: u32, value: T) {
        let bytes = value.as_bytes();
        match *bytes {
            [a, b, c, d, e, f, g, h] => {
                self.set_word(address / 4, u32::from_le_bytes([a, b, c, d]));
                self.set_word(address / 4 + 1, u32::from_le_bytes([e, f, g, h]));
            }
            [a, b, c, d] => self.set_word(address / 4, u32::from_le_bytes([a, b, c, d])),
            _ => {
                let mut word = [0; 4];
                word[..bytes.len()].copy_from_slice(bytes);
                let shift = 8 * (address % 4);
                let ones = if bytes.len() == 1 { 0xff } else { 0xffff };
                let others = self.word(address / 4) & !(ones << shift);
                self.set_word(address / 4, others | u32::from_le_bytes(word) << shift);
            }
        }
    }
}

impl<W: Words> Words for &mut W {
    #[inline(always)]
    fn word(&self, index: u32) -> u32 {
        (**self).word(index)
    }

    #[inline(always)]
    fn set_word(&mut self, index: u32, value: u32) {
        (**self).set_word(index, value);
    }
}

/// Shared memory of a block, as words of 32 bits.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// Words of the memory. The array always has full length, so that an index of 16 bits needs no bounds
    /// check.
    words: Box<[u32; SHARED_WORDS]>,
    /// Number of bytes that blocks of this launch may access.
    pub(crate) bytes: u32,
}

impl SharedMemory {
    /// Allocates shared memory with no bytes accessible. Returns `None` if the host has no memory.
    pub(crate) fn new() -> Option<Self> {
        let mut words: Vec<u32> = Vec::new();
        words.try_reserve_exact(SHARED_WORDS).ok()?;
        words.resize(SHARED_WORDS, 0);
        let words = words.into_boxed_slice().try_into().expect("as many words as asked for");
        Some(Self { words, bytes: 0 })
    }

    /// Zeroes the memory for a new launch whose blocks have `bytes` bytes of it, so that nothing of other
    /// launches is visible.
    pub(crate) fn reset(&mut self, bytes: u32) {
        let used = (self.bytes.max(bytes)).div_ceil(4) as usize;
        self.words[..used.min(SHARED_WORDS)].fill(0);
        self.bytes = bytes;
    }

    /// Borrows all words for reading.
    #[inline(always)]
    pub(crate) const fn words(&self) -> &[u32; SHARED_WORDS] {
        &self.words
    }

    /// Borrows all words for writing.
    #[inline(always)]
    pub(crate) const fn words_mut(&mut self) -> &mut [u32; SHARED_WORDS] {
        &mut self.words
    }
}

impl Words for SharedMemory {
    #[inline(always)]
    fn word(&self, index: u32) -> u32 {
        self.words[index as u16 as usize]
    }

    #[inline(always)]
    fn set_word(&mut self, index: u32, value: u32) {
        self.words[index as u16 as usize] = value;
    }
}

/// Local memory of the lanes of a warp. A row holds the same word of all lanes, because lanes mostly access
/// the same address.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalMemory {
    rows: Vec<[u32; LANES]>,
    /// Size of each lane's local memory in bytes.
    pub(crate) bytes: u32,
}

impl LocalMemory {
    /// Gives each lane `bytes` bytes of zeroed memory. Returns false if the host has no memory.
    pub(crate) fn reset(&mut self, bytes: u32) -> bool {
        let rows = bytes.div_ceil(4) as usize;
        self.rows.clear();
        if self.rows.try_reserve_exact(rows).is_err() {
            self.bytes = 0;
            return false;
        }
        self.rows.resize(rows, [0; LANES]);
        self.bytes = bytes;
        true
    }

    /// Returns the host memory in bytes for a warp whose lanes have `bytes` bytes each.
    pub(crate) const fn cost(bytes: u32) -> u64 {
        bytes.div_ceil(4) as u64 * size_of::<[u32; LANES]>() as u64
    }

    /// Returns the word that contains byte `address` of each lane, or `None` beyond the end.
    #[inline(always)]
    pub(crate) fn row(&self, address: u32) -> Option<&[u32; LANES]> {
        self.rows.get(address as usize / 4)
    }

    /// Returns the address of the first row for machine code.
    pub(crate) const fn rows(&mut self) -> *mut u32 {
        self.rows.as_mut_ptr().cast()
    }

    /// Returns the memory of one lane.
    #[inline(always)]
    pub(crate) fn lane(&mut self, lane: usize) -> LocalLane<'_> {
        LocalLane { memory: self, lane }
    }
}

/// Local memory of one thread, as words. Reads beyond the end return 0, and writes are dropped.
pub(crate) struct LocalLane<'a> {
    memory: &'a mut LocalMemory,
    lane: usize,
}

impl Words for LocalLane<'_> {
    #[inline(always)]
    fn word(&self, index: u32) -> u32 {
        self.memory.rows.get(index as usize).map_or(0, |row| row[self.lane])
    }

    #[inline(always)]
    fn set_word(&mut self, index: u32, value: u32) {
        if let Some(row) = self.memory.rows.get_mut(index as usize) {
            row[self.lane] = value;
        }
    }
}
