//! The interface by which a device of another version is presented as one of version 2.
//!
//! The program that opens a [`Device`](crate::Device) passes the [`OpenBridge`] of a crate that knows the
//! older version. That crate implements [`Bridge`] on [`crate::parts`]; this crate knows nothing of it. A
//! device of version 2 has no bridge, so its data path pays one comparison.

use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use vgpu_wire::facts::DeviceFacts;

use crate::mapping::Mapping;
use crate::open_error::OpenError;
use crate::registers::Registers;
use crate::session_error::SessionError;
use crate::sysfs::PciFunction;

/// A device of another version. Its registers read as those of version 2 do, and a doorbell executes the
/// messages in the ring before it returns.
pub trait Bridge: Registers {
    /// Returns the device's facts.
    fn facts(&self) -> Box<DeviceFacts>;

    /// Returns the path of the file whose bytes the processes of the machine lock, one for each channel.
    fn lock_file(&self) -> &Path;

    /// Returns the window, which is memory of this process.
    ///
    /// # Errors
    /// Fails if the memory cannot be mapped.
    fn window(&self) -> io::Result<Arc<Mapping>>;

    /// Returns the size in bytes of the guest pages that carry payload, or `None` if a BAR carries it, with
    /// an exit of the virtual machine for each 8 bytes.
    fn payload_pages(&self) -> Option<u32>;

    /// Uploads straight from memory instead of through the ring. The inner result holds the host's
    /// `CUresult`.
    ///
    /// # Safety
    /// `source` is readable for `bytes`.
    ///
    /// # Errors
    /// Fails if the session is lost.
    unsafe fn copy_in(
        &self,
        to: u64,
        source: *const u8,
        bytes: usize,
    ) -> Result<Result<(), u32>, SessionError>;

    /// Downloads straight to memory. The inner result holds the host's `CUresult`.
    ///
    /// # Safety
    /// `destination` is writable for `bytes`, and nobody else uses it meanwhile.
    ///
    /// # Errors
    /// Fails if the session is lost.
    unsafe fn copy_out(
        &self,
        from: u64,
        destination: NonNull<u8>,
        bytes: usize,
    ) -> Result<Result<(), u32>, SessionError>;

    /// Stores a `CUresult` as the late error of the message that was executed last.
    fn fail_last_message(&self, code: u32);
}

/// Opens the bridge to a function whose BAR0 is smaller than version 2's, given its registers and whether it
/// is on the simulated bus.
pub type OpenBridge = fn(
    function: &PciFunction,
    registers: Arc<dyn Registers>,
    simulated: bool,
) -> Result<Arc<dyn Bridge>, OpenError>;
