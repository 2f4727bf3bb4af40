//! Memory that guests and the host share: the window, the memory of a guest, and the owner of each part.

pub(crate) mod address_space;
pub(crate) mod guest;
pub(crate) mod pages;
pub(crate) mod window;
pub(crate) mod window_allocator;
