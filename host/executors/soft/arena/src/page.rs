//! Sizes of pages, and how memory is rounded to them.

/// Size of a page in bytes, of which the addresses and lengths of mappings are multiples.
pub const PAGE: u64 = 4096;

/// Size of a large page of the host in bytes. Mappings of this size and more get large pages if the system
/// has them. They should start at a multiple of it, apart from smaller mappings.
pub const LARGE_PAGE: u64 = 2 << 20;

/// Number of bytes of an arena that are made accessible at a time. Each such piece, counted from the arena's
/// base, has pages of one kind.
pub const OPENED_TOGETHER: u64 = 64 << 20;

/// Returns the number of bytes of memory that [`crate::Arena::map`] takes for `bytes`: whole large pages from
/// [`LARGE_PAGE`] on, whole pages below. Returns `None` if that number exceeds 64 bits.
#[must_use]
pub const fn whole_pages(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(if bytes >= LARGE_PAGE { LARGE_PAGE } else { PAGE })
}
