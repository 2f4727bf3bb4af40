//! Access to BAR1, through which payload travels where the device does not take guest pages: a mapped BAR, or
//! the socket of the simulated bus.

use std::sync::atomic::Ordering;

use vgpu_transport::parts::{Mapping, MemoryType, RegisterError, SimRegisters, check_home, map};
use vgpu_transport::{OpenError, PciFunction};
use vgpu_wire::sim_bus::{self, ANSWER_BYTES, BLOCK};

/// A BAR that holds data. Each access to it is an exit of the virtual machine.
pub(crate) trait DataBar: Send + Sync + std::fmt::Debug {
    /// Stores bytes from `offset` on, a multiple of 8, in the widest accesses that the BAR takes.
    fn write(&self, offset: u32, data: &[u8]) -> Result<(), RegisterError>;

    /// Loads bytes from `offset` on, a multiple of 8.
    fn read(&self, offset: u32, data: &mut [u8]) -> Result<(), RegisterError>;
}

/// Opens the function's BAR1. Returns `None` if the function has none.
pub(crate) fn open(function: &PciFunction, simulated: bool) -> Result<Option<Box<dyn DataBar>>, OpenError> {
    let path = function.dir.join("resource1");
    Ok(match (function.bars[1].bytes, simulated) {
        (0, _) => None,
        (_, true) => Some(Box::new(SimRegisters::unconnected(function.address, path))),
        (bytes, false) => Some(Box::new(map(&path, bytes, MemoryType::Uncached)?)),
    })
}

/// A mapped BAR. A BAR behind an emulator takes accesses of at most 8 bytes. The bytes stored beyond the last
/// one are zero.
impl DataBar for Mapping {
    fn write(&self, offset: u32, data: &[u8]) -> Result<(), RegisterError> {
        check_home()?;
        for (part, at) in data.chunks(8).zip((u64::from(offset)..).step_by(8)) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.store64(at, u64::from_le_bytes(word), Ordering::Relaxed);
        }
        Ok(())
    }

    fn read(&self, offset: u32, data: &mut [u8]) -> Result<(), RegisterError> {
        check_home()?;
        for (part, at) in data.chunks_mut(8).zip((u64::from(offset)..).step_by(8)) {
            let word = self.load64(at, Ordering::Relaxed).to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
        Ok(())
    }
}

/// A BAR behind a socket of the simulated bus. Runs of accesses travel in blocks.
impl DataBar for SimRegisters {
    fn write(&self, offset: u32, data: &[u8]) -> Result<(), RegisterError> {
        for (block, at) in data.chunks(BLOCK).zip((offset..).step_by(BLOCK)) {
            let mut packet = request(sim_bus::WRITE_BLOCK, at, block.len());
            packet.extend_from_slice(block);
            self.exchange(&packet, &mut [0; ANSWER_BYTES])?;
        }
        Ok(())
    }

    fn read(&self, offset: u32, data: &mut [u8]) -> Result<(), RegisterError> {
        let mut answer = vec![0; ANSWER_BYTES + data.len().min(BLOCK)];
        for (block, at) in data.chunks_mut(BLOCK).zip((offset..).step_by(BLOCK)) {
            let answer = &mut answer[..ANSWER_BYTES + block.len()];
            self.exchange(&request(sim_bus::READ_BLOCK, at, block.len()), answer)?;
            block.copy_from_slice(&answer[ANSWER_BYTES..]);
        }
        Ok(())
    }
}

/// Returns the head of a packet for a block of a BAR.
fn request(operation: u32, offset: u32, bytes: usize) -> Vec<u8> {
    [operation, offset, bytes as u32].map(u32::to_le_bytes).concat()
}
