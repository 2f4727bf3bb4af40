//! The parts of this crate on which a [`crate::bridge::Bridge`] is built. Nothing else uses them from
//! outside.

pub use crate::bar_mappings::map;
pub use crate::descriptor::Descriptor;
pub use crate::lock::LockFile;
pub use crate::log_hook::notify;
pub use crate::mapping::{Mapping, MemoryType};
pub use crate::pages::{LARGE_PAGE, lock_range, page_addresses};
pub use crate::registers::{Access, BATCH, RegisterError, Registers, check_home};
pub use crate::session_error::known;
pub use crate::sim::SimRegisters;
pub use crate::sleep::wake;
