//! The driver's linker: code of several inputs becomes one image, which the guest reads back and may load as
//! any other. Only with hosts that have [`exec::LINKS`](crate::facts::exec::LINKS).

use crate::span::Span;

wire_struct! {
    /// `cuLinkCreate`. Reply: no data. For each input a `LinkInput` and its `LinkData` follow, then
    /// `LinkComplete`.
    pub struct LinkOpen = 32 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number for the link, minted by the guest and not in use.
        pub link: u32 = 4,
        /// Combination of [`LINK_DEBUG`] and [`LINK_LINES`].
        pub flags: u32 = 8,
        /// Value of `CU_JIT_MAX_REGISTERS`, registers of a thread; 0 if the program gives none.
        pub max_registers: u32 = 12,
        /// Value of `CU_JIT_THREADS_PER_BLOCK`; 0 if the program gives none.
        pub threads_per_block: u32 = 16,
        /// Value of `CU_JIT_OPTIMIZATION_LEVEL`, 0 to 4.
        pub optimization: u32 = 20,
        /// Value of `CU_JIT_TARGET`, the number in `sm_NUMBER`; 0 for the device's own architecture.
        pub target: u32 = 24,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 28,
    }
}

/// [`LinkOpen::flags`]: the program set `CU_JIT_GENERATE_DEBUG_INFO`.
pub const LINK_DEBUG: u32 = 1 << 0;
/// [`LinkOpen::flags`]: the program set `CU_JIT_GENERATE_LINE_INFO`.
pub const LINK_LINES: u32 = 1 << 1;

wire_struct! {
    /// `cuLinkAddData`: announces one more input, whose bytes follow in `LinkData` messages. The tail is its
    /// name for messages, `name_bytes` long and without a zero. What is wrong with an input is told by the
    /// answer to `LinkComplete`.
    pub struct LinkInput = 24 {
        /// Number of the link, from [`LinkOpen::link`].
        pub link: u32 = 0,
        /// `CUjitInputType`: one of the `INPUT_` constants below.
        pub kind: u32 = 4,
        /// Length of the name in bytes, at most [`INPUT_NAME_MOST`].
        pub name_bytes: u32 = 8,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 12,
        /// Length of the input in bytes.
        pub bytes: u64 = 16,
    }
}

/// [`LinkInput::kind`]: a cubin (`CU_JIT_INPUT_CUBIN`).
pub const INPUT_CUBIN: u32 = 0;
/// [`LinkInput::kind`]: PTX text without a trailing zero (`CU_JIT_INPUT_PTX`).
pub const INPUT_PTX: u32 = 1;
/// [`LinkInput::kind`]: a fat binary (`CU_JIT_INPUT_FATBINARY`).
pub const INPUT_FATBINARY: u32 = 2;
/// [`LinkInput::kind`]: a host object with embedded device code (`CU_JIT_INPUT_OBJECT`).
pub const INPUT_OBJECT: u32 = 3;
/// [`LinkInput::kind`]: an archive of such objects (`CU_JIT_INPUT_LIBRARY`).
pub const INPUT_LIBRARY: u32 = 4;
/// Maximum length in bytes of an input's name. The guest truncates longer ones.
pub const INPUT_NAME_MOST: u32 = 1024;

wire_struct! {
    /// A piece of the newest input, which is the tail when the span is inline. Pieces are sent in order.
    pub struct LinkData = 40 {
        /// Number of the link, from [`LinkOpen::link`].
        pub link: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// Offset of the piece in the input.
        pub offset: u64 = 8,
        /// Bytes of the piece. The host has read them once [`RETURN_DONE`](crate::area::RETURN_DONE) counts
        /// the message.
        pub data: Span = 16,
    }
}

wire_struct! {
    /// `cuLinkComplete`: links the inputs, which the host then frees. Reply: [`LinkReply`], or why linking
    /// failed.
    pub struct LinkComplete = 8 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number of the link, from [`LinkOpen::link`].
        pub link: u32 = 4,
    }
}

wire_struct! {
    /// Kind and length of the linked image, which [`LinkRead`] returns.
    pub struct LinkReply = 16 {
        /// [`IMAGE_PTX`](super::module::IMAGE_PTX) or [`IMAGE_CUBIN`](super::module::IMAGE_CUBIN).
        pub image: u32 = 0,
        /// Reserved: the host stores zero.
        pub reserved: u32 = 4,
        /// Length of the image in bytes.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// Reads the linked image. Reply: its bytes from `offset` on, at most
    /// [`REPLY_DATA_MAX`](crate::area::REPLY_DATA_MAX) and fewer at its end.
    pub struct LinkRead = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number of the link, from [`LinkOpen::link`].
        pub link: u32 = 4,
        /// Offset in the image of the first byte to return.
        pub offset: u64 = 8,
    }
}

wire_struct! {
    /// `cuLinkDestroy`: ends a link, complete or not.
    pub struct LinkClose = 8 {
        /// Number of the link, from [`LinkOpen::link`].
        pub link: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
    }
}
