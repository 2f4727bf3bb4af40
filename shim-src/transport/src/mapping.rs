//! Shared memory: only this module accesses it, by volatile and atomic operations.
//!
//! Another process, or another machine, writes to this memory at any moment. So no reference into it ever
//! exists, except to atomics: words are loaded and stored with an ordering, bytes are copied by raw pointers
//! into and out of private memory, and the private copy is checked.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::RawFd;

#[cfg(target_arch = "x86_64")]
use crate::stream::stream_lines_out;
use crate::stream::{LINE, store_fence, stream};

/// Minimum length in bytes of the parts of a download that are stored past the caches: those of copies of 2
/// MiB or more ([`crate::copies`]).
const PAST_CACHES: usize = 512 << 10;

/// How the processor caches the memory, which determines the cost of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryType {
    /// Ordinary memory, such as files on the simulated bus.
    WriteBack,
    /// A BAR mapped through `resourceN_wc`: stores are combined, and need a fence to be ordered.
    WriteCombined,
    /// A BAR mapped through `resourceN`: each access goes to the bus.
    Uncached,
}

/// A memory mapping, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    memory: MemoryType,
}

// SAFETY: the mapping is plain memory that any thread may reach; all access goes through atomics, volatile
// accesses and raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of a file, shared, for reading and writing.
    pub(crate) fn of_file(file: RawFd, bytes: usize, memory: MemoryType) -> io::Result<Self> {
        Self::of_part(file, 0, bytes, memory)
    }

    /// Maps `bytes` of a file from `offset` on, a multiple of the page size, shared, for reading and writing.
    pub fn of_part(file: RawFd, offset: u64, bytes: usize, memory: MemoryType) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        Self::map(ptr::null_mut(), bytes, libc::MAP_SHARED, file, offset, memory)
    }

    /// Maps a page of a file at `offset`, a multiple of the page size, which may only be read. The file need
    /// not be open for writing.
    pub(crate) fn of_page_to_read(file: RawFd, offset: u64) -> io::Result<Self> {
        const PAGE: usize = 4096;
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping where the kernel chooses.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, file, offset) };
        Self::made(base, PAGE, MemoryType::Uncached)
    }

    /// Maps private zeroed memory, which takes room as it is written.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::map(ptr::null_mut(), bytes, flags, -1, 0, MemoryType::WriteBack)
    }

    /// Reserves addresses, in which [`Mapping::lay`] maps memory of the type `memory`. The rest cannot be
    /// accessed.
    pub(crate) fn reserved(bytes: usize, memory: MemoryType) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel chooses.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        Self::made(base, bytes, memory)
    }

    /// Reserves the addresses from `address` on, a multiple of the page size, and no others. They cannot be
    /// accessed; no page and no page table is behind them. Children of this process do not inherit them, and
    /// core dumps omit them.
    ///
    /// # Errors
    /// Fails with `AlreadyExists` if the process has mapped something there, otherwise with the kernel's
    /// error, such as `ENOMEM` above a limit of address space.
    pub(crate) fn reserved_at(address: u64, bytes: usize) -> io::Result<Self> {
        // A kernel before 4.17 does not know MAP_FIXED_NOREPLACE, and treats the address as a hint.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let at = ptr::without_provenance_mut(address as usize);
        // SAFETY: a new mapping, which replaces none: the kernel puts it at a free address, or refuses.
        let base = unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, -1, 0) };
        let mapping = Self::made(base, bytes, MemoryType::WriteBack)?;
        if mapping.base.as_ptr().cast() != at {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        mapping.keep_from_children()?;
        // SAFETY: names this value's mapping, which nobody can access.
        let left_out = unsafe { libc::madvise(base, bytes, libc::MADV_DONTDUMP) };
        if left_out == 0 { Ok(mapping) } else { Err(io::Error::last_os_error()) }
    }

    /// Replaces the memory at `offset` by `bytes` of a file from `from` on. All three are multiples of the
    /// page size. No thread may use that memory meanwhile.
    pub(crate) fn lay(&self, offset: u64, file: RawFd, from: u64, bytes: u64) -> io::Result<()> {
        let at = self.pointer(offset, bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let from = libc::off_t::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let laid = Self::map(at.as_ptr().cast(), bytes as usize, flags, file, from, self.memory)?;
        // The addresses are this value's to unmap.
        core::mem::forget(laid);
        Ok(())
    }

    /// Maps pages of a file of large pages one after the other, in the given order. They are present, and
    /// children of this process do not inherit them, because their physical addresses are given to the host.
    pub fn of_large(file: RawFd, order: &[usize], page: usize) -> io::Result<Self> {
        // Nothing is set aside for pages of the file that are not among these.
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let all = order.len() * page;
        let mapping = Self::map(ptr::null_mut(), all, flags, file, 0, MemoryType::WriteBack)?;
        for (at, &from) in order.iter().enumerate().filter(|(at, from)| at != *from) {
            mapping.lay((at * page) as u64, file, (from * page) as u64, page as u64)?;
        }
        mapping.keep_from_children()?;
        mapping.populate()?;
        Ok(mapping)
    }

    /// Maps the System V segment with this id and size, which consists of large pages, as
    /// [`Mapping::of_large`] does.
    pub(crate) fn of_segment(segment: libc::c_int, bytes: usize) -> io::Result<Self> {
        // SAFETY: attaches where the kernel chooses.
        let base = unsafe { libc::shmat(segment, ptr::null(), 0) };
        let mapping = Self::made(base, bytes, MemoryType::WriteBack)?;
        mapping.keep_from_children()?;
        mapping.populate()?;
        Ok(mapping)
    }

    pub(crate) fn keep_from_children(&self) -> io::Result<()> {
        // SAFETY: names this value's mapping; a child does not get it.
        let kept = unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_DONTFORK) };
        if kept == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes all pages present. To touch a page that cannot be allocated would raise a signal; this returns
    /// an error.
    fn populate(&self) -> io::Result<()> {
        let at = self.base.as_ptr().cast();
        // SAFETY: names this value's mapping, whose contents stay.
        if unsafe { libc::madvise(at, self.bytes, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        // Before Linux 5.14. SAFETY: as above.
        if unsafe { libc::mlock(at, self.bytes) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn map(
        at: *mut c_void,
        bytes: usize,
        flags: i32,
        file: RawFd,
        offset: libc::off_t,
        memory: MemoryType,
    ) -> io::Result<Self> {
        // SAFETY: `at` is null (the kernel chooses), or the start of a mapping of `bytes` that the caller
        // owns and wants replaced.
        let base = unsafe { libc::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, file, offset) };
        Self::made(base, bytes, memory)
    }

    /// Wraps the result of a system call that maps memory, unless it failed.
    fn made(base: *mut c_void, bytes: usize, memory: MemoryType) -> io::Result<Self> {
        match NonNull::new(base.cast::<u8>()) {
            // `shmat` fails with the same value.
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { base, bytes, memory }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the memory type of the mapping.
    pub(crate) fn memory(&self) -> MemoryType {
        self.memory
    }

    /// Returns the length of the mapping in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Replaces the memory by private, zeroed memory at the same addresses, in one step. A thread that still
    /// has a pointer into it can continue without affecting anybody else.
    pub(crate) fn make_private(&self) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let replaced = Self::map(self.base.as_ptr().cast(), self.bytes, flags, -1, 0, self.memory)?;
        // The addresses are this value's to unmap.
        core::mem::forget(replaced);
        Ok(())
    }

    /// Returns the address of `bytes` bytes at `offset`. Panics if the range is not mapped: offsets that come
    /// from a device are checked before this call.
    #[inline]
    fn at(&self, offset: u64, bytes: usize) -> *mut u8 {
        let offset = offset as usize;
        assert!(bytes <= self.bytes && offset <= self.bytes - bytes);
        // SAFETY: the range lies within the mapping, as was checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Returns the address of a word. Panics if it is not mapped or not aligned.
    #[inline]
    fn word<T>(&self, offset: u64) -> *mut T {
        assert!(offset.is_multiple_of(align_of::<T>() as u64));
        let word = self.at(offset, size_of::<T>());
        word.cast()
    }

    #[inline]
    fn word32(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: mapped and aligned, as `word` checked, for as long as `self`; everybody uses atomics for
        // it.
        unsafe { AtomicU32::from_ptr(self.word(offset)) }
    }

    #[inline]
    fn word64(&self, offset: u64) -> &AtomicU64 {
        // SAFETY: as in `word32`.
        unsafe { AtomicU64::from_ptr(self.word(offset)) }
    }

    /// Loads a 32-bit word with the given ordering.
    #[inline]
    pub fn load32(&self, offset: u64, order: Ordering) -> u32 {
        self.word32(offset).load(order)
    }

    /// Loads a 64-bit word with the given ordering.
    #[inline]
    pub fn load64(&self, offset: u64, order: Ordering) -> u64 {
        self.word64(offset).load(order)
    }

    /// Stores a 32-bit word with the given ordering.
    #[inline]
    pub fn store32(&self, offset: u64, value: u32, order: Ordering) {
        self.word32(offset).store(value, order);
    }

    /// Stores a 64-bit word with the given ordering.
    #[inline]
    pub fn store64(&self, offset: u64, value: u64, order: Ordering) {
        self.word64(offset).store(value, order);
    }

    /// Returns the word that a futex call names.
    pub fn futex(&self, offset: u64) -> &AtomicU32 {
        self.word32(offset)
    }

    /// Reads a register by one aligned 32-bit load, which the compiler neither omits, repeats nor moves.
    pub(crate) fn read_register(&self, offset: u32) -> u32 {
        let register = self.word::<u32>(u64::from(offset));
        // SAFETY: mapped and aligned, as `word` checked.
        u32::from_le(unsafe { register.read_volatile() })
    }

    /// Writes a register by one aligned 32-bit store.
    pub(crate) fn write_register(&self, offset: u32, value: u32) {
        let register = self.word::<u32>(u64::from(offset));
        // SAFETY: as in `read_register`.
        unsafe { register.write_volatile(value.to_le()) };
    }

    /// Copies process memory into the mapping.
    ///
    /// # Safety
    /// `source` is readable for `bytes`, and does not overlap the destination.
    #[inline]
    pub(crate) unsafe fn copy_in(&self, offset: u64, source: *const u8, bytes: usize) {
        let destination = self.at(offset, bytes);
        // SAFETY: the source is the caller's promise, the destination was checked by `at`.
        unsafe { ptr::copy_nonoverlapping(source, destination, bytes) };
    }

    /// Copies process memory into the mapping past the caches, for large copies that the other side reads
    /// next: its processor has the old contents in its caches, and fetching each line from there first would
    /// halve the speed. `offset` is a multiple of `LINE`.
    ///
    /// # Safety
    /// As for `Mapping::copy_in`.
    pub unsafe fn stream_in(&self, offset: u64, source: *const u8, bytes: usize) {
        let destination = self.at(offset, bytes);
        assert!(destination.addr().is_multiple_of(LINE));
        let lines = bytes - bytes % LINE;
        // SAFETY: the source is the caller's promise, the destination was checked; it is aligned, and whole
        // lines are copied.
        unsafe { stream(destination, source, lines) };
        // SAFETY: `lines` is no more than `bytes`, as the caller promises the source.
        let rest = unsafe { source.add(lines) };
        // SAFETY: the rest of the source.
        unsafe { self.copy_in(offset + lines as u64, rest, bytes - lines) };
    }

    /// Copies from the mapping into process memory.
    ///
    /// # Safety
    /// `destination` is writable for `bytes`, and does not overlap the source.
    #[inline]
    pub unsafe fn copy_out(&self, offset: u64, destination: *mut u8, bytes: usize) {
        let source = self.at(offset, bytes);
        // SAFETY: the destination is the caller's promise, the source was checked by `at`.
        unsafe { ptr::copy_nonoverlapping(source, destination, bytes) };
    }

    /// Copies from the mapping into process memory, for large copies. Write-combined memory is loaded a line
    /// at a time, because plain loads would each go to the bus. Parts of at least [`PAST_CACHES`] from other
    /// memory are stored past the caches: in a destination that long the first lines have left the caches
    /// when the last ones are written, so fetching each line before it is overwritten would be wasted.
    ///
    /// # Safety
    /// As for [`Mapping::copy_out`].
    pub(crate) unsafe fn stream_out(&self, offset: u64, destination: *mut u8, bytes: usize) {
        #[cfg(target_arch = "x86_64")]
        if self.memory == MemoryType::WriteCombined && std::arch::is_x86_feature_detected!("sse4.1") {
            let source = self.at(offset, bytes);
            if source.addr().is_multiple_of(LINE) {
                let lines = bytes - bytes % LINE;
                // SAFETY: the processor can, the source is mapped and aligned, the destination the caller's
                // promise.
                unsafe { stream_lines_out(source, destination, lines) };
                // SAFETY: `lines` is no more than `bytes`, as the caller promises the destination.
                let rest = unsafe { destination.add(lines) };
                // SAFETY: the rest of the destination.
                return unsafe { self.copy_out(offset + lines as u64, rest, bytes - lines) };
            }
        }
        let lines = if bytes < PAST_CACHES { 0 } else { bytes - bytes % LINE - LINE };
        let head =
            if lines == 0 { 0 } else { destination.addr().next_multiple_of(LINE) - destination.addr() };
        // SAFETY: the caller promises that the destination is writable for `bytes`; `head` is below a line.
        unsafe { self.copy_out(offset, destination, head) };
        // SAFETY: `head` is no more than `bytes`, as the caller promises the destination.
        let aligned = unsafe { destination.add(head) };
        // SAFETY: `head` and `lines` are together less than `bytes`, which are mapped and, as the caller
        // promises, writable. The destination is aligned where there are lines.
        unsafe { stream(aligned, self.at(offset + head as u64, lines), lines) };
        let done = head + lines;
        // SAFETY: `done` is no more than `bytes`, as the caller promises the destination.
        let rest = unsafe { destination.add(done) };
        // SAFETY: the rest of the destination.
        unsafe { self.copy_out(offset + done as u64, rest, bytes - done) };
    }

    /// Copies private bytes into the mapping.
    #[inline]
    pub fn put(&self, offset: u64, source: &[u8]) {
        // SAFETY: a slice is readable, and never part of a mapping: no reference into one exists.
        unsafe { self.copy_in(offset, source.as_ptr(), source.len()) };
    }

    /// Copies from the mapping into private bytes.
    pub fn get(&self, offset: u64, destination: &mut [u8]) {
        // SAFETY: as in `put`.
        unsafe { self.copy_out(offset, destination.as_mut_ptr(), destination.len()) };
    }

    /// Returns the address of a range, or `None` if it is not mapped. Only the range's owner may use it.
    pub fn pointer(&self, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes()).then(|| self.at(offset, bytes as usize)).and_then(NonNull::new)
    }

    /// Orders earlier stores before later stores, as the other side sees them. A release store does not order
    /// stores to write-combined memory.
    #[inline]
    pub fn order_stores(&self) {
        if self.memory == MemoryType::WriteCombined {
            store_fence();
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_are_little_endian() {
        let mapping = Mapping::anonymous(8192).unwrap();
        mapping.store64(8, 0x0102_0304_0506_0708, Ordering::Release);
        assert_eq!(mapping.load32(8, Ordering::Acquire), 0x0506_0708);
        let mut bytes = [0; 8];
        mapping.get(8, &mut bytes);
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
        mapping.put(4095, &[9, 9]);
        assert_eq!(mapping.load32(4096, Ordering::Relaxed), 9);
        mapping.write_register(4, 7);
        assert_eq!(mapping.read_register(4), 7);
    }

    #[test]
    fn streams_copy_every_byte_and_no_other() {
        let mapping = Mapping::anonymous(16384).unwrap();
        let source: Vec<u8> = (0..9000_u32).map(|i| (i % 251) as u8 + 1).collect();
        for (offset, skip, bytes) in [(0, 0, 8192), (4096, 1, 64), (128, 3, 63), (64, 7, 4097), (192, 5, 0)] {
            mapping.put(0, &[0; 16384]);
            // SAFETY: `skip` and `bytes` are a part of the source.
            unsafe { mapping.stream_in(offset, source[skip..].as_ptr(), bytes) };
            let mut seen = vec![0; 16384];
            mapping.get(0, &mut seen);
            let (before, rest) = seen.split_at(offset as usize);
            let (copied, after) = rest.split_at(bytes);
            assert!(copied == &source[skip..skip + bytes], "{bytes} bytes at {offset}");
            assert!(before.iter().chain(after).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn long_streams_out_copy_every_byte_and_no_other() {
        const BYTES: usize = PAST_CACHES + 4096;
        let mapping = Mapping::anonymous(BYTES).unwrap();
        let source: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8 + 1).collect();
        mapping.put(0, &source);
        for (offset, skip, bytes) in
            [(0, 0, PAST_CACHES), (64, 1, PAST_CACHES), (65, 63, PAST_CACHES + 77), (7, 64, PAST_CACHES - 1)]
        {
            let mut seen = vec![0; BYTES + 128];
            // SAFETY: `bytes` from `skip` on are a part of the vector.
            unsafe { mapping.stream_out(offset as u64, seen[skip..].as_mut_ptr(), bytes) };
            let (before, rest) = seen.split_at(skip);
            let (copied, after) = rest.split_at(bytes);
            assert!(copied == &source[offset..offset + bytes], "{bytes} bytes from {offset} to {skip}");
            assert!(before.iter().chain(after).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn nothing_outside_has_an_address() {
        let mapping = Mapping::anonymous(8192).unwrap();
        assert!(mapping.pointer(0, 8192).is_some());
        assert!(mapping.pointer(1, 8192).is_none());
        assert!(mapping.pointer(u64::MAX, 2).is_none());
        for offset in [8190, 8192, u64::MAX - 3, 2] {
            let load = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                mapping.load32(offset, Ordering::Relaxed)
            }));
            assert!(load.is_err(), "{offset}");
        }
    }

    #[test]
    fn private_memory_takes_the_place_of_shared() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let here = Mapping::of_file(number, 8192, MemoryType::WriteBack).unwrap();
        let there = Mapping::of_file(number, 8192, MemoryType::WriteBack).unwrap();
        here.store32(0, 5, Ordering::Release);
        assert_eq!(there.load32(0, Ordering::Acquire), 5);
        let before = here.pointer(0, 1);
        here.make_private().unwrap();
        assert_eq!(here.pointer(0, 1), before);
        assert_eq!(here.load32(0, Ordering::Acquire), 0);
        here.store32(0, 6, Ordering::Release);
        assert_eq!(there.load32(0, Ordering::Acquire), 5);
    }
}
