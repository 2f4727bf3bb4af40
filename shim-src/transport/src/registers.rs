//! Access to BAR0: a mapped BAR, or the socket of the simulated bus ([`crate::sim`]).

use std::io;
use std::time::Duration;

/// Maximum number of accesses at a time.
pub use vgpu_wire::sim_bus::BATCH;

use crate::fork;
use crate::mapping::Mapping;
use crate::session_error::SessionError;

/// Why a register access failed.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The other end of the socket is closed and cannot be reconnected.
    #[error("the register socket is closed")]
    Closed(#[source] io::Error),
    /// The device answered, but not with success.
    #[error("the device refused a register access with status {0}")]
    Refused(u32),
    /// This process is a forked child.
    #[error("the registers belong to the parent of this forked process")]
    Forked,
    /// The device behind a bridge is lost ([`crate::bridge`]).
    #[error("{0}")]
    Lost(SessionError),
    /// A bounded access took too long.
    #[error("the device did not answer in time")]
    TimedOut,
}

/// Returns the 64-bit value of two registers.
pub(crate) fn wide(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// One access to BAR0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the register at an offset.
    Read(u32),
    /// Writes a value to the register at an offset.
    Write(u32, u32),
}

/// Access to BAR0: aligned 32-bit reads and writes. Used from any thread.
pub trait Registers: Send + Sync + std::fmt::Debug {
    /// Makes several accesses, at most [`BATCH`], in their order, and returns when all have completed.
    /// `values`, as long as `accesses`, receives the values that were read, and unspecified values for
    /// writes.
    fn access(&self, accesses: &[Access], values: &mut [u32]) -> Result<(), RegisterError>;

    /// Writes a register without waiting for the effect, unless `still` returns false when the access can be
    /// made. Returns whether the register was written.
    fn post(&self, offset: u32, value: u32, still: &dyn Fn() -> bool) -> Result<bool, RegisterError>;

    /// Writes a register, but gives up after `limit`, for a process that exits.
    fn write_within(&self, offset: u32, value: u32, limit: Duration) -> Result<(), RegisterError>;
}

impl dyn Registers + '_ {
    /// Reads several registers, in their order.
    pub fn read<const N: usize>(&self, offsets: [u32; N]) -> Result<[u32; N], RegisterError> {
        let mut values = [0; N];
        self.access(&offsets.map(Access::Read), &mut values)?;
        Ok(values)
    }

    /// Writes a register.
    pub fn write(&self, offset: u32, value: u32) -> Result<(), RegisterError> {
        self.access(&[Access::Write(offset, value)], &mut [0])
    }
}

/// Registers of a mapped BAR0.
#[derive(Debug)]
pub(crate) struct BarRegisters(pub(crate) Mapping);

impl Registers for BarRegisters {
    fn access(&self, accesses: &[Access], values: &mut [u32]) -> Result<(), RegisterError> {
        check_home()?;
        for (access, result) in accesses.iter().zip(values) {
            match *access {
                Access::Read(offset) => *result = self.0.read_register(offset),
                Access::Write(offset, value) => self.0.write_register(offset, value),
            }
        }
        Ok(())
    }

    fn post(&self, offset: u32, value: u32, still: &dyn Fn() -> bool) -> Result<bool, RegisterError> {
        check_home()?;
        if !still() {
            return Ok(false);
        }
        self.0.write_register(offset, value);
        Ok(true)
    }

    fn write_within(&self, offset: u32, value: u32, _limit: Duration) -> Result<(), RegisterError> {
        self.access(&[Access::Write(offset, value)], &mut [0])
    }
}

/// Fails in a forked child.
pub fn check_home() -> Result<(), RegisterError> {
    if fork::forked() { Err(RegisterError::Forked) } else { Ok(()) }
}
