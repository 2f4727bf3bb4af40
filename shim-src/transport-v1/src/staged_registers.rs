//! The values of the registers that describe a call. They persist from call to call, so a value that is
//! already there is not stored again: each store is an exit of the virtual machine, about 90 µs on existing
//! hosts.

use vgpu_transport::parts::Access;
use vgpu_wire::v1::{ARGS, INLINE_BYTES, registers as reg};

const INLINE_WORDS: usize = INLINE_BYTES as usize / 4;

/// Values that this process knows the registers to have; `None` for a value that is not known.
#[derive(Debug)]
pub(crate) struct StagedRegisters {
    /// The registers of [`HEAD`].
    head: [Option<u32>; HEAD.len()],
    args: [Option<u32>; ARGS],
    inline: Box<[Option<u32>; INLINE_WORDS]>,
}

/// Registers for owner, operation, sequence number, number of arguments, and payload length.
const HEAD: [u32; 5] = [reg::SCRATCH, reg::CUDA_OP, reg::CUDA_SEQ, reg::CUDA_NUM_ARGS, reg::CUDA_DATA_LEN];

impl StagedRegisters {
    /// Creates the record of a device of whose registers nothing is known.
    pub(crate) fn new() -> Self {
        Self { head: [None; HEAD.len()], args: [None; ARGS], inline: Box::new([None; INLINE_WORDS]) }
    }

    /// Discards all values, because another process has held the device's lock.
    pub(crate) fn forget(&mut self) {
        *self = Self::new();
    }

    /// Returns the store that names the owner of the next call, if it is needed.
    pub(crate) fn store_owner(&mut self, token: u32) -> Option<Access> {
        let [scratch, ..] = &mut self.head;
        (scratch.replace(token) != Some(token)).then_some(Access::Write(reg::SCRATCH, token))
    }

    /// Returns the stores that a call needs. `bytes` is the length of its payload, and `inline` the payload
    /// itself if BAR0 carries it.
    pub(crate) fn stores(
        &mut self,
        token: u32,
        op: u32,
        args: &[u32],
        bytes: u32,
        inline: &[u8],
    ) -> Vec<Access> {
        let mut stores = Vec::new();
        let mut store = |known: &mut Option<u32>, offset: u32, value: u32| {
            if *known != Some(value) {
                *known = Some(value);
                stores.push(Access::Write(offset, value));
            }
        };
        for ((known, part), at) in
            self.inline.iter_mut().zip(inline.chunks(4)).zip((reg::INLINE_REQUEST..).step_by(4))
        {
            let mut word = [0; 4];
            word[..part.len()].copy_from_slice(part);
            store(known, at, u32::from_le_bytes(word));
        }
        // The sequence number is only echoed in the answer, so it stays the same.
        for ((known, offset), value) in
            self.head.iter_mut().zip(HEAD).zip([token, op, 1, args.len() as u32, bytes])
        {
            store(known, offset, value);
        }
        for ((known, &value), at) in self.args.iter_mut().zip(args).zip((reg::CUDA_ARGS..).step_by(4)) {
            store(known, at, value);
        }
        stores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_written_again() {
        let mut staged = StagedRegisters::new();
        // The worked example: 4096 bytes for process 1234.
        let first = staged.stores(1234, 0x30, &[4096, 0, 0, 0], 0, &[]);
        let expected = [
            (0x03c, 1234),
            (0x080, 0x30),
            (0x084, 1),
            (0x088, 4),
            (0x08c, 0),
            (0x0b0, 4096),
            (0x0b4, 0),
            (0x0b8, 0),
            (0x0bc, 0),
        ];
        assert_eq!(first, expected.map(|(at, value)| Access::Write(at, value)));
        assert_eq!(staged.stores(1234, 0x30, &[4096, 0, 0, 0], 0, &[]), []);
        assert_eq!(staged.stores(1234, 0x30, &[8192, 0, 0, 0], 0, &[]), [Access::Write(0x0b0, 8192)]);
        let inline = staged.stores(1234, 0x32, &[8192, 0, 6, 0], 6, &[1, 0, 0, 0, 2, 3]);
        let expected = [(0x100, 1), (0x104, 0x302), (0x080, 0x32), (0x08c, 6), (0x0b8, 6)];
        assert_eq!(inline, expected.map(|(at, value)| Access::Write(at, value)));
        assert_eq!(staged.store_owner(1234), None);
        assert_eq!(staged.store_owner(1235), Some(Access::Write(0x03c, 1235)));
        staged.forget();
        assert_eq!(staged.stores(1234, 0x30, &[4096, 0, 0, 0], 0, &[]), first);
    }
}
