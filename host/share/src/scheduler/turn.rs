//! What the node process orders a device, and what the device answers.

/// How a device treats messages of its VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Messages are carried out. Nothing is counted and nothing is answered: the VM is alone.
    #[default]
    Open,
    /// Messages are carried out. The work in flight is bounded, and the device answers when work begins and
    /// when all of it is complete.
    Metered,
    /// Messages wait. The device answers when the work that was in flight is complete.
    Shut,
}

impl Mode {
    /// Returns the number that stands for the mode in an order's word.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the mode of a number. Any other number opens the gate, which harms nobody for long.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Metered,
            2 => Self::Shut,
            _ => Self::Open,
        }
    }
}

/// Bits of an order's number, which shares a word with the mode. The number after the largest is 0.
pub const TURN_MASK: u32 = (1 << 30) - 1;

/// An order to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Number of the order, at most [`TURN_MASK`], which is new whenever the mode changes.
    pub turn: u32,
    /// How the device treats messages.
    pub mode: Mode,
}

/// What a device says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Number of the order that the device follows.
    pub turn: u32,
    /// Whether messages are being carried out, or wait at the gate.
    pub work: bool,
    /// Whether work may be incomplete on the GPU.
    pub in_flight: bool,
}
