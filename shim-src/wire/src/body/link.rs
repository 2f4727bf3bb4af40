//! The driver's linker: code of several inputs becomes one image, which the guest reads back and may load as
//! any other. Only with hosts that have [`exec::LINKS`](crate::facts::exec::LINKS).

use crate::span::Span;

wire_struct! {
    /// Begins a link under a minted number. Reply: no data. `LinkInput` and `LinkData` messages follow for
    /// each input, then `LinkComplete`.
    pub struct LinkOpen = 32 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Minted number.
        pub link: u32 = 4,
        /// [`LINK_DEBUG`], [`LINK_LINES`].
        pub flags: u32 = 8,
        /// `CU_JIT_MAX_REGISTERS`; 0: not given.
        pub max_registers: u32 = 12,
        /// `CU_JIT_THREADS_PER_BLOCK`; 0: not given.
        pub threads_per_block: u32 = 16,
        /// `CU_JIT_OPTIMIZATION_LEVEL`, 0 to 4.
        pub optimization: u32 = 20,
        /// `CU_JIT_TARGET`, as in `sm_NUMBER`; 0: the device's.
        pub target: u32 = 24,
        /// Zero.
        pub reserved: u32 = 28,
    }
}

/// [`LinkOpen::flags`]: `CU_JIT_GENERATE_DEBUG_INFO`.
pub const LINK_DEBUG: u32 = 1 << 0;
/// [`LinkOpen::flags`]: `CU_JIT_GENERATE_LINE_INFO`.
pub const LINK_LINES: u32 = 1 << 1;

wire_struct! {
    /// One more input. The tail is its name for messages, `name_bytes` long, no zero. Its bytes follow in
    /// `LinkData` messages. What is wrong with it is told by the answer to `LinkComplete`.
    pub struct LinkInput = 24 {
        /// Minted number of the link.
        pub link: u32 = 0,
        /// `CUjitInputType`.
        pub kind: u32 = 4,
        /// Bytes of the name.
        pub name_bytes: u32 = 8,
        /// Zero.
        pub reserved: u32 = 12,
        /// Bytes of the input.
        pub bytes: u64 = 16,
    }
}

/// [`LinkInput::kind`]: `CU_JIT_INPUT_CUBIN`.
pub const INPUT_CUBIN: u32 = 0;
/// [`LinkInput::kind`]: `CU_JIT_INPUT_PTX`: text, without a trailing zero.
pub const INPUT_PTX: u32 = 1;
/// [`LinkInput::kind`]: `CU_JIT_INPUT_FATBINARY`.
pub const INPUT_FATBINARY: u32 = 2;
/// [`LinkInput::kind`]: `CU_JIT_INPUT_OBJECT`.
pub const INPUT_OBJECT: u32 = 3;
/// [`LinkInput::kind`]: `CU_JIT_INPUT_LIBRARY`.
pub const INPUT_LIBRARY: u32 = 4;
/// The longest name of an input, bytes. The guest cuts longer ones.
pub const INPUT_NAME_MOST: u32 = 1024;

wire_struct! {
    /// A piece of the newest input; the tail is the piece when the span is inline. Pieces come in order.
    pub struct LinkData = 40 {
        /// Minted number of the link.
        pub link: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Offset of the piece in the input.
        pub offset: u64 = 8,
        /// The piece. The host has read it when the message is counted as done.
        pub data: Span = 16,
    }
}

wire_struct! {
    /// Links the inputs, which the host then frees. Reply: [`LinkReply`], or the status of `cuLinkComplete`.
    pub struct LinkComplete = 8 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Minted number.
        pub link: u32 = 4,
    }
}

wire_struct! {
    /// What was linked.
    pub struct LinkReply = 16 {
        /// [`IMAGE_PTX`](super::module::IMAGE_PTX) or [`IMAGE_CUBIN`](super::module::IMAGE_CUBIN).
        pub image: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Bytes of the image.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// Reads the image. Reply: its bytes from `offset` on, as many as a slot holds
    /// ([`REPLY_DATA_MAX`](crate::area::REPLY_DATA_MAX)), fewer at its end.
    pub struct LinkRead = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Minted number.
        pub link: u32 = 4,
        /// First byte.
        pub offset: u64 = 8,
    }
}

wire_struct! {
    /// Ends a link, complete or not.
    pub struct LinkClose = 8 {
        /// Minted number.
        pub link: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}
