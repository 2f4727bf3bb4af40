//! The log buffers that programs pass to the compiler (`CU_JIT_INFO_LOG_BUFFER`, `CU_JIT_ERROR_LOG_BUFFER`).
//! The compiler runs on the host when a kernel is first needed. A program that passes a log buffer makes it
//! run at once, so that the log contains the host's messages.

use std::ffi::{c_uint, c_void};
use std::ptr;

use vgpu_abi::CUresult;

use crate::Result;
use crate::code::refusal;

/// `CUjit_option`, the ids of the options that concern logs.
mod id {
    use std::ffi::c_uint;

    pub(super) const INFO_LOG_BUFFER: c_uint = 3;
    pub(super) const INFO_LOG_BUFFER_SIZE_BYTES: c_uint = 4;
    pub(super) const ERROR_LOG_BUFFER: c_uint = 5;
    pub(super) const ERROR_LOG_BUFFER_SIZE_BYTES: c_uint = 6;
}

/// One log buffer of the program, and the address at which the length of its text is stored.
#[derive(Debug)]
struct Log {
    buffer: *mut u8,
    room: usize,
    /// The buffer's size before the call, the text's length after it.
    size: *mut *mut c_void,
}

// SAFETY: the addresses are followed by calls alone that the program makes for the purpose, whose contract
// says that what lies there stays until the last of them.
unsafe impl Send for Log {}

impl Log {
    const NONE: Self = Self { buffer: ptr::null_mut(), room: 0, size: ptr::null_mut() };

    /// Stores as much of the text as there is room for, with a zero at its end, and its length.
    fn store(&self, text: &str) {
        let mut stored = 0;
        if let Some(most) = self.room.checked_sub(1).filter(|_| !self.buffer.is_null()) {
            stored = text.floor_char_boundary(most);
            // SAFETY: the export's caller promised a buffer of `room` bytes, more than the text has here.
            unsafe { ptr::copy_nonoverlapping(text.as_ptr(), self.buffer, stored) };
            // SAFETY: `stored` is below `room`.
            let end = unsafe { self.buffer.add(stored) };
            // SAFETY: within the buffer.
            unsafe { end.write(0) };
        }
        if !self.size.is_null() {
            // SAFETY: one of the values that the export's caller promised for the options.
            unsafe { self.size.write(ptr::without_provenance_mut(stored)) };
        }
    }
}

/// The log buffers that a call was given.
#[derive(Debug)]
pub struct JitLogs {
    info: Log,
    error: Log,
}

impl JitLogs {
    /// Reads the log buffers among the options of a call. Other options are ignored.
    ///
    /// # Safety
    /// `values` is null or has a value for each of the options, of the type that the manual says, until the
    /// logs are stored.
    pub unsafe fn from_options(options: &[c_uint], values: *mut *mut c_void) -> Result<Self> {
        let mut logs = Self { info: Log::NONE, error: Log::NONE };
        if values.is_null() {
            return if options.is_empty() { Ok(logs) } else { Err(CUresult::INVALID_VALUE) };
        }
        for (index, &option) in options.iter().enumerate() {
            // SAFETY: upheld by the caller.
            let place = unsafe { values.add(index) };
            // SAFETY: upheld by the caller.
            let value = || unsafe { place.read() };
            match option {
                id::INFO_LOG_BUFFER => logs.info.buffer = value().cast(),
                id::ERROR_LOG_BUFFER => logs.error.buffer = value().cast(),
                id::INFO_LOG_BUFFER_SIZE_BYTES => {
                    // The value is an unsigned int, in the low half.
                    logs.info.room = value().addr() as u32 as usize;
                    logs.info.size = place;
                }
                id::ERROR_LOG_BUFFER_SIZE_BYTES => {
                    logs.error.room = value().addr() as u32 as usize;
                    logs.error.size = place;
                }
                _ => {}
            }
        }
        refusal::take_last();
        Ok(logs)
    }

    /// Returns whether the program passed a log buffer, so that the compiler has to run at once.
    pub fn wanted(&self) -> bool {
        [&self.info, &self.error].iter().any(|log| !log.buffer.is_null() && log.room > 1)
    }

    /// Stores the log of a call: `info` if it succeeded, otherwise why the host or the guest refused the
    /// code.
    pub fn store<T>(&self, outcome: &Result<T>, info: &str) {
        let why = refusal::take_last();
        match outcome {
            Ok(_) => {
                self.info.store(info);
                self.error.store("");
            }
            Err(code) => {
                self.info.store("");
                self.error.store(&if why.is_empty() { format!("{code}") } else { why });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_cut_to_their_buffers_and_sized() {
        let mut buffer = [0x55_u8; 8];
        let mut values =
            [buffer.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(6), ptr::null_mut()];
        // SAFETY: a value for each option.
        let logs = unsafe { JitLogs::from_options(&[5, 6, 0], values.as_mut_ptr()) }.unwrap();
        assert!(logs.wanted());
        refusal::record("h\u{e9}ll\u{f6}");
        logs.store::<()>(&Err(CUresult::INVALID_PTX), "");
        assert_eq!(&buffer, b"h\xc3\xa9ll\0\x55\x55", "a letter is not cut in two");
        assert_eq!(values[1].addr(), 5);
        // SAFETY: as above.
        let none = unsafe { JitLogs::from_options(&[0], values.as_mut_ptr()) }.unwrap();
        assert!(!none.wanted());
        none.store(&Ok(()), "info");
        // SAFETY: as above: there are no values.
        assert!(unsafe { JitLogs::from_options(&[5], ptr::null_mut()) }.is_err());
    }
}
