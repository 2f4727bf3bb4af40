//! Whether the device's process answers at all: a register that no page of memory shows.

use vgpu_wire::registers::channel;

use crate::device::{Device, OpenError};
use crate::registers::RegisterError;

impl Device {
    /// Reads a channel's state, which has to come from the device itself. Waits as long as the answer takes: whoever asks bounds it.
    ///
    /// # Errors
    /// The device is gone, or refuses.
    pub fn ask(&self) -> Result<(), OpenError> {
        let function = || self.function().address.to_string();
        match self.registers.read([channel::base(0) + channel::STATE]) {
            Ok(_) => Ok(()),
            Err(RegisterError::Forked) => Err(OpenError::Forked { function: function() }),
            Err(RegisterError::Refused(status)) => Err(OpenError::Strange {
                function: function(),
                what: format!("a register read failed with {status}"),
            }),
            Err(RegisterError::Closed(_) | RegisterError::TimedOut | RegisterError::Lost(_)) => {
                Err(OpenError::Gone { function: function() })
            }
        }
    }
}
