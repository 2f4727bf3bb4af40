//! Allocations, and fills.

use vgpu_wire::body::copy::Fill;
use vgpu_wire::body::memory::{Address, MEM_MANAGED, MemInfoReply};
use vgpu_wire::v1::call::{ALLOCATIONS_MAX, Op};
use vgpu_wire::v1::split;

use super::super::call::{Call, Failure, Payload};
use super::{INVALID_VALUE, Means, NOT_SUPPORTED, OUT_OF_MEMORY, Translator};

/// Bytes of the pattern that are sent where the host cannot fill with it.
const PATTERN: usize = 64 << 10;

impl Translator {
    pub(super) fn allocate(&mut self, means: Means<'_>, flags: u32, bytes: u64) -> Result<Address, Failure> {
        if flags & MEM_MANAGED != 0 {
            return Err(Failure::Status(NOT_SUPPORTED));
        }
        // One more would work, but the host would neither know it nor free it when this process dies (Q21).
        if self.allocations.len() >= ALLOCATIONS_MAX {
            return Err(Failure::Status(OUT_OF_MEMORY));
        }
        let [low, high] = split(bytes);
        let [address, ..] = self.plain(means, &Call::new(Op::MemAlloc, &[low, high, 0, 0]).results(1))?;
        self.allocations.insert(address, bytes);
        Ok(Address { address })
    }

    pub(super) fn free(&mut self, means: Means<'_>, address: u64) -> Result<(), Failure> {
        if self.allocations.remove(address).is_none() {
            return Err(Failure::Status(INVALID_VALUE));
        }
        self.plain(means, &Call::new(Op::MemFree, &split(address))).map(|_| ())
    }

    pub(super) fn memory_info(&self, means: Means<'_>) -> Result<MemInfoReply, Failure> {
        let [free, total, ..] = self.plain(means, &Call::new(Op::MemGetInfo, &[]).results(2))?;
        Ok(MemInfoReply { free, total })
    }

    /// Start and end of the allocation that contains a range.
    pub(super) fn around(&self, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let &(start, length) = self.allocations.below(address)?;
        let end = start.checked_add(length)?;
        (address.checked_add(bytes)? <= end).then_some((start, end))
    }

    pub(super) fn fill(&self, means: Means<'_>, body: &Fill) -> Result<(), Failure> {
        let row = body.width.checked_mul(u64::from(body.element)).ok_or(Failure::Status(INVALID_VALUE))?;
        // Contiguous rows are one.
        let (width, height) =
            if body.pitch == row { (body.width * body.height, 1) } else { (body.width, body.height) };
        for at in 0..height {
            let destination = body.destination.wrapping_add(at * body.pitch);
            self.fill_row(means, destination, width, body)?;
        }
        Ok(())
    }

    fn fill_row(&self, means: Means<'_>, destination: u64, count: u64, body: &Fill) -> Result<(), Failure> {
        let memset = |op, value, count: u64| {
            let ([low, high], [count_low, count_high]) = (split(destination), split(count));
            self.plain(means, &Call::new(op, &[low, high, value, 0, count_low, count_high])).map(|_| ())
        };
        if count == 0 {
            return Ok(());
        }
        let [first, second, ..] = body.value.to_le_bytes();
        match body.element {
            1 => memset(Op::MemsetD8, u32::from(first), count),
            4 => memset(Op::MemsetD32, body.value, count),
            // The host has no such call. Two equal bytes, or an even count at an address for words, are one
            // of the others.
            2 if first == second => memset(Op::MemsetD8, u32::from(first), 2 * count),
            2 if destination.is_multiple_of(4) && count.is_multiple_of(2) => {
                let half = body.value & 0xffff;
                memset(Op::MemsetD32, half << 16 | half, count / 2)
            }
            2 => self.fill_pattern(means, destination, 2 * count, [first, second]),
            _ => Err(Failure::Status(INVALID_VALUE)),
        }
    }

    /// Sends the start of the range, and lets the host double it by copies until everything is filled.
    fn fill_pattern(
        &self,
        means: Means<'_>,
        destination: u64,
        bytes: u64,
        pattern: [u8; 2],
    ) -> Result<(), Failure> {
        let mut done = bytes.min(PATTERN as u64);
        let data: Vec<u8> = pattern.iter().copied().cycle().take(done as usize).collect();
        self.upload(means, destination, Payload::Bytes(&data))?;
        while done < bytes {
            let more = done.min(bytes - done);
            self.copy(means, destination + done, destination, more)?;
            done += more;
        }
        Ok(())
    }
}
