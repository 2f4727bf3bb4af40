//! Guest pages: memory that the host is given by its guest-physical address.
//!
//! Such memory must stay where it is. Only pages of 2 MiB (hugetlb) do: the kernel moves others as it likes,
//! locked or not, so they are not used. The kernel tells root alone which pages they are. On a simulated bus,
//! guest memory is a file.
//!
//! A device takes a list of them ([`HugePages`]). Hosts may write to the pages when the process that gave
//! them is already dead, so they outlive it.

mod frames;
mod huge_page_pool;
mod large;

pub use frames::addresses as page_addresses;
pub(crate) use huge_page_pool::{HugePagePool, HugePages, REST, device_key};
pub use large::{LARGE_PAGE, lock_range};
