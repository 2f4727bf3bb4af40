//! The `sim` bus: a directory that looks like sysfs, with devices in it that live in this process.
//!
//! ```text
//! DIR                                          locked by the process that serves it
//! DIR/control                                  control socket
//! DIR/ram                                      guest memory, for devices that reach it; the offset is the guest-physical address
//! DIR/bus/pci/devices/0000:00:05.0/
//!     vendor device class ... enable resource  text, as sysfs has it
//!     config                                   configuration space of version 2: ids, and the key of guest pages
//!     resource0                                BAR0: a SOCK_SEQPACKET socket (`socket.rs`)
//!     resource0_ro                             the registers that have no side effects and the facts, as a file (`page.rs`)
//!     resource1                                BAR1 of version 1: a socket like resource0, which takes blocks, too
//!     resource2  resource2_wc                  BAR2 of version 2: one sparse file under two names
//! ```
//! Guests of a bus are processes of the same host that may open these files, so the bus serves tests and
//! isolates nothing: a guest that truncates the window file takes the device down, which no VM can do.

mod bus;
mod control;
mod device;
mod directory;
mod error;
mod page;
mod ram;
mod socket;

pub use bus::{SimBus, StatusHandle};
pub use control::ExitHandle;
pub use device::{BusDevice, SimDevice, SimFunction};
pub use error::SimError;
pub use socket::Bar;
