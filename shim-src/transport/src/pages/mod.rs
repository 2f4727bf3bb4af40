//! Guest pages: memory that the host is given by its guest-physical address.
//!
//! Such memory must stay in place. Only pages of 2 MiB (hugetlb) do: the kernel moves others, locked or not,
//! so they are not used. The kernel tells their addresses only to root. On a simulated bus, guest memory is a
//! file.
//!
//! A device accepts a list of them ([`HugePages`]). A host may write to the pages when the process that
//! registered them is already dead, so they outlive it.

mod frames;
mod huge_page_pool;
mod large;

pub use frames::addresses as page_addresses;
pub(crate) use huge_page_pool::{HugePagePool, HugePages, REST, device_key};
pub use large::{LARGE_PAGE, lock_range};
