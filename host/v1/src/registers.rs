//! BAR0 as data: what each 32-bit access reads and changes. What a write causes beyond that is returned to
//! the device as an [`Effect`].
//!
//! If two registers claim an offset, the decode order decides, for reads and writes alike: control block
//! below 0x40, CUDA block 0x80 to 0xff, inline request 0x100 to 0x4ff, the legacy request buffer, then the
//! read-only registers.

use vgpu_wire::v1::registers::{self as reg, IDLE};
use vgpu_wire::v1::{ARGS, INLINE_BYTES, RESULTS};

const INLINE: usize = INLINE_BYTES as usize;
const LEGACY: usize = (reg::LEGACY_REQUEST_END - reg::LEGACY_REQUEST) as usize;
const ARGS_END: u32 = reg::CUDA_ARGS + 4 * ARGS as u32;
const CUDA_END: u32 = 0x100;
const CONTROL_END: u32 = reg::LEGACY_REQUEST;
const INLINE_REQUEST_END: u32 = reg::INLINE_REQUEST + INLINE_BYTES;
const INLINE_RESPONSE_END: u32 = reg::INLINE_RESPONSE + INLINE_BYTES;
const RESULTS_END: u32 = reg::RESULTS + 8 * RESULTS as u32;

/// Action that a write requests from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The write changed registers, and the device has nothing else to do.
    None,
    /// The device submits the call that is staged.
    Submit,
    /// The device submits the legacy request.
    Legacy,
    /// The device registers the window.
    Register,
    /// The device releases the window.
    Release,
}

/// Register values that are set when the device is made and never change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    /// The pool's letter in ASCII.
    pub(super) pool: u8,
    pub(super) priority: u8,
    pub(super) vm_id: u32,
    pub(super) protocol: u32,
}

/// Register values that the guest writes. They keep their values from call to call.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) op: u32,
    pub(super) seq: u32,
    pub(super) num_args: u32,
    pub(super) data_len: u32,
    pub(super) args: [u32; ARGS],
    pub(super) scratch: u32,
    pub(super) inline: [u8; INLINE],
    pub(super) gpa: u64,
    pub(super) window_bytes: u32,
    pub(super) legacy_len: u32,
    legacy_id: u32,
    legacy: [u8; LEGACY],
    irq_ctrl: u32,
}

/// Register values that the device writes and the guest reads.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) status: u32,
    pub(super) error: u32,
    pub(super) response_len: u32,
    /// Time of the last answer, in microseconds since the device was made.
    pub(super) timestamp: u64,
    pub(super) result_status: u32,
    pub(super) result_num: u32,
    pub(super) result_data_len: u32,
    pub(super) results: [u64; RESULTS],
    pub(super) inline: [u8; INLINE],
    /// Whether a window is registered.
    pub(super) window: bool,
}

impl Shown {
    /// Clears the results, as a doorbell and a reset do.
    pub(super) const fn clear_results(&mut self) {
        self.response_len = 0;
        self.result_status = 0;
        self.result_num = 0;
        self.result_data_len = 0;
        self.results = [0; RESULTS];
        self.inline = [0; INLINE];
    }
}

/// The registers of BAR0: the values that guest and device write, and fixed ones.
#[derive(Debug)]
pub(super) struct Registers {
    identity: Identity,
    pub(super) staged: Staged,
    pub(super) shown: Shown,
}

/// Returns the little-endian word of `bytes` from `at` on, with zeros beyond the end.
fn word(bytes: &[u8], at: u32) -> u32 {
    let mut word = [0; 4];
    let rest = &bytes[(at as usize).min(bytes.len())..];
    let length = rest.len().min(4);
    word[..length].copy_from_slice(&rest[..length]);
    u32::from_le_bytes(word)
}

fn put_word(bytes: &mut [u8], at: u32, value: u32) {
    let start = (at as usize).min(bytes.len());
    let length = (bytes.len() - start).min(4);
    bytes[start..start + length].copy_from_slice(&value.to_le_bytes()[..length]);
}

const fn with_low(value: u64, low: u32) -> u64 {
    value & !0xffff_ffff | low as u64
}

const fn with_high(value: u64, high: u32) -> u64 {
    value & 0xffff_ffff | (high as u64) << 32
}

impl Registers {
    /// Returns the registers after a reset.
    pub(super) const fn new(identity: Identity) -> Self {
        Self {
            identity,
            staged: Staged {
                op: 0,
                seq: 0,
                num_args: 0,
                data_len: 0,
                args: [0; ARGS],
                scratch: 0,
                inline: [0; INLINE],
                gpa: 0,
                window_bytes: 0,
                legacy_len: 0,
                legacy_id: 0,
                legacy: [0; LEGACY],
                irq_ctrl: 0,
            },
            shown: Shown {
                status: IDLE,
                error: 0,
                response_len: 0,
                timestamp: 0,
                result_status: 0,
                result_num: 0,
                result_data_len: 0,
                results: [0; RESULTS],
                inline: [0; INLINE],
                window: false,
            },
        }
    }

    /// Reads 4 bytes at `offset`. Returns 0 if there is no register.
    pub(super) fn read(&self, offset: u32) -> u32 {
        let Self { identity, staged, shown } = self;
        match offset {
            ..CONTROL_END => match offset {
                reg::STATUS => shown.status,
                reg::POOL_ID => identity.pool.into(),
                reg::PRIORITY => identity.priority.into(),
                vgpu_wire::registers::VM_ID => identity.vm_id,
                reg::ERROR_CODE => shown.error,
                reg::REQUEST_LEN => staged.legacy_len,
                reg::RESPONSE_LEN => shown.response_len,
                vgpu_wire::registers::PROTOCOL_VER => identity.protocol,
                vgpu_wire::registers::CAPABILITIES => reg::CAPABILITIES,
                reg::IRQ_CTRL => staged.irq_ctrl,
                reg::REQUEST_ID => staged.legacy_id,
                reg::TIMESTAMP_LO => shown.timestamp as u32,
                reg::TIMESTAMP_HI => (shown.timestamp >> 32) as u32,
                reg::SCRATCH => staged.scratch,
                _ => 0,
            },
            reg::CUDA_OP..CUDA_END => match offset {
                reg::CUDA_OP => staged.op,
                reg::CUDA_SEQ => staged.seq,
                reg::CUDA_NUM_ARGS => staged.num_args,
                reg::CUDA_DATA_LEN => staged.data_len,
                reg::CUDA_ARGS..ARGS_END => staged.args[((offset - reg::CUDA_ARGS) / 4) as usize],
                reg::RESULT_STATUS => shown.result_status,
                reg::RESULT_NUM => shown.result_num,
                reg::RESULT_DATA_LEN => shown.result_data_len,
                _ => 0,
            },
            reg::INLINE_REQUEST..INLINE_REQUEST_END => word(&staged.inline, offset - reg::INLINE_REQUEST),
            reg::LEGACY_REQUEST..reg::LEGACY_REQUEST_END => {
                word(&staged.legacy, offset - reg::LEGACY_REQUEST)
            }
            reg::INLINE_RESPONSE..INLINE_RESPONSE_END => word(&shown.inline, offset - reg::INLINE_RESPONSE),
            reg::RESULTS..RESULTS_END => {
                let at = offset - reg::RESULTS;
                (shown.results[(at / 8) as usize] >> (at / 4 % 2 * 32)) as u32
            }
            reg::SHMEM_GPA_LO => staged.gpa as u32,
            reg::SHMEM_GPA_HI => (staged.gpa >> 32) as u32,
            reg::SHMEM_SIZE => staged.window_bytes,
            reg::SHMEM_CTRL => shown.window.into(),
            _ => 0,
        }
    }

    /// Writes 4 bytes at `offset`. The write is ignored if there is no register, or a read-only one.
    pub(super) fn write(&mut self, offset: u32, value: u32) -> Effect {
        let staged = &mut self.staged;
        match offset {
            ..CONTROL_END => match offset {
                reg::DOORBELL if value == reg::RING => return Effect::Legacy,
                reg::REQUEST_LEN => staged.legacy_len = value,
                reg::IRQ_CTRL => staged.irq_ctrl = value & 1,
                reg::REQUEST_ID => staged.legacy_id = value,
                reg::SCRATCH => staged.scratch = value,
                _ => {}
            },
            reg::CUDA_OP..CUDA_END => match offset {
                reg::CUDA_OP => staged.op = value,
                reg::CUDA_SEQ => staged.seq = value,
                reg::CUDA_NUM_ARGS => staged.num_args = value.min(ARGS as u32),
                reg::CUDA_DATA_LEN => staged.data_len = value,
                reg::CUDA_DOORBELL if value == reg::RING => return Effect::Submit,
                reg::CUDA_ARGS..ARGS_END => staged.args[((offset - reg::CUDA_ARGS) / 4) as usize] = value,
                _ => {}
            },
            reg::INLINE_REQUEST..INLINE_REQUEST_END => {
                put_word(&mut staged.inline, offset - reg::INLINE_REQUEST, value);
            }
            reg::LEGACY_REQUEST..reg::LEGACY_REQUEST_END => {
                put_word(&mut staged.legacy, offset - reg::LEGACY_REQUEST, value);
            }
            reg::SHMEM_GPA_LO => staged.gpa = with_low(staged.gpa, value),
            reg::SHMEM_GPA_HI => staged.gpa = with_high(staged.gpa, value),
            reg::SHMEM_SIZE => staged.window_bytes = value,
            reg::SHMEM_CTRL => match value {
                reg::SHMEM_REGISTER => return Effect::Register,
                reg::SHMEM_RELEASE => return Effect::Release,
                _ => {}
            },
            _ => {}
        }
        Effect::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> Registers {
        Registers::new(Identity { pool: b'B', priority: 2, vm_id: 10, protocol: 0x0001_0000 })
    }

    #[test]
    fn reset_values_are_these() {
        let registers = registers();
        let fixed = [(0x008, 0x42), (0x00c, 2), (0x010, 10), (0x020, 0x0001_0000), (0x024, 0x71)];
        for offset in (0..0x1000).step_by(4) {
            let expected = fixed.iter().find(|(at, _)| *at == offset).map_or(0, |&(_, value)| value);
            assert_eq!(registers.read(offset), expected, "{offset:#x}");
        }
    }

    #[test]
    fn staging_is_read_back_and_nothing_else_is() {
        let mut registers = registers();
        let kept = |offset: u32| matches!(offset, 0x018 | 0x030 | 0x03c..0x080 | 0x080..0x090 | 0x0b0..0x0f0 | 0x100..0x500 | 0x940..0x94c);
        for offset in (0..0x1000).step_by(4) {
            let before = registers.read(offset);
            registers.write(offset, 0xf000_0000 | offset);
            let expected = match offset {
                0x028 => 0,
                0x088 => 16,
                _ if kept(offset) => 0xf000_0000 | offset,
                _ => before,
            };
            assert_eq!(registers.read(offset), expected, "{offset:#x}");
        }
        registers.write(0x028, 3);
        assert_eq!(registers.read(0x028), 1);
    }

    #[test]
    fn only_a_one_rings() {
        let mut registers = registers();
        assert_eq!(registers.write(0x0a8, 1), Effect::Submit);
        assert_eq!(registers.write(0x0a8, 2), Effect::None);
        assert_eq!(registers.write(0x000, 1), Effect::Legacy);
        assert_eq!(registers.write(0x000, 0x101), Effect::None);
        assert_eq!(registers.write(0x94c, 1), Effect::Register);
        assert_eq!(registers.write(0x94c, 0), Effect::Release);
        assert_eq!(registers.write(0x94c, 2), Effect::None);
    }
}
