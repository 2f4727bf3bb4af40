//! The message: header, table of kinds, decoder.

mod tail;

use zerocopy::{FromBytes, IntoBytes};

use crate::body::{copy, gemm, graph, launch, link, matmul, memory, module, pages, session, stream, vector};
use crate::layout::{Layout, fnv1a};
use crate::span::{Mark, Span};
use tail::Tail;

/// Messages start at multiples of this many bytes.
pub const MESSAGE_ALIGN: u64 = 16;

/// [`Header::flags`]: [`Header::join`] names a stream that later work of the session waits for.
pub const FLAG_JOIN: u16 = 1 << 0;
/// All flags there are; any other is a violation.
pub const KNOWN_FLAGS: u16 = FLAG_JOIN;

/// [`Header::join`] and [`stream::Signal`]: every stream of the session.
pub const JOIN_ALL: u32 = u32::MAX;

wire_struct! {
    /// Head of every message.
    pub struct Header = 16 {
        /// A [`Kind`].
        pub kind: u16 = 0,
        /// [`FLAG_JOIN`].
        pub flags: u16 = 2,
        /// Bytes of the whole message, header and padding included; a multiple of [`MESSAGE_ALIGN`].
        pub bytes: u32 = 4,
        /// Low half of the message's number in its session, from 1.
        pub number: u32 = 8,
        /// Stream to join when [`FLAG_JOIN`] is set, else 0.
        pub join: u32 = 12,
    }
}

/// `bytes`, rounded up to [`MESSAGE_ALIGN`].
#[must_use]
pub const fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(MESSAGE_ALIGN) * MESSAGE_ALIGN
}

/// A body that can be sent: it knows its kind.
pub trait Payload: IntoBytes + zerocopy::Immutable {
    /// The kind that goes into the header.
    const KIND: Kind;
}

/// A body that is answered.
pub trait RoundTrip: Payload {
    /// Names the reply slot.
    fn set_reply(&mut self, slot: u32);
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Fewer bytes than a header, or than the header says.
    Short,
    /// The header's size is no multiple of the alignment, or too small for the kind's body.
    Size(u32),
    /// No such kind.
    Kind(u16),
    /// Unknown flags, or a join without its flag.
    Flags(u16),
    /// The body states a tail that the message is too short or too long for.
    Tail(u64),
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Short => f.write_str("the message is shorter than its header says"),
            Self::Size(bytes) => write!(f, "a message of {bytes} bytes is not one of its kind"),
            Self::Kind(kind) => write!(f, "there is no message kind {kind:#06x}"),
            Self::Flags(flags) => write!(f, "flags {flags:#06x} are unknown or contradict the join field"),
            Self::Tail(bytes) => write!(f, "a tail of {bytes} bytes does not fit the message"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Continues a digest with a kind: its name, its id, its body's layout.
const fn digest<P: Payload + Layout>(hash: u64) -> u64 {
    let hash = fnv1a(hash, P::KIND.name().as_bytes());
    let hash = fnv1a(hash, &(P::KIND as u64).to_le_bytes());
    fnv1a(hash, &P::DIGEST.to_le_bytes())
}

macro_rules! kinds {
    ($( $(#[$meta:meta])* $id:literal $name:ident($ty:path) $($reply:ident)? $(@ $ability:ident)? ; )*) => {
        /// Kinds of messages: the table of the contract. Numbers are explicit and never used again.
        ///
        /// Every host of this [`crate::WIRE_VERSION`] knows the kinds without an ability; the others are
        /// extensions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Kind { $( $(#[$meta])* $name = $id, )* }

        impl TryFrom<u16> for Kind {
            type Error = DecodeError;

            fn try_from(kind: u16) -> Result<Self, DecodeError> {
                match kind {
                    $( $id => Ok(Self::$name), )*
                    other => Err(DecodeError::Kind(other)),
                }
            }
        }

        impl Kind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            /// The kind's name, for logs and counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// Bytes of the kind's body.
            #[must_use]
            pub const fn body_bytes(self) -> usize {
                match self { $( Self::$name => size_of::<$ty>(), )* }
            }

            /// Whether the kind is answered in a reply slot.
            #[must_use]
            pub const fn replies(self) -> bool {
                match self { $( Self::$name => kinds!(@reply $($reply)?), )* }
            }

            /// The bit of [`DeviceFacts::abilities`](crate::facts::DeviceFacts::abilities) by which a host
            /// announces the kind. `None`: every host knows it.
            #[must_use]
            pub const fn ability(self) -> Option<u32> {
                match self { $( Self::$name => kinds!(@ability $($ability)?), )* }
            }
        }

        /// A decoded body, by value: nothing refers to shared memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant, reason = "lives on the stack of one loop")]
        pub enum Body { $( $(#[$meta])* $name($ty), )* }

        impl Body {
            /// The body's kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $( Self::$name(_) => Kind::$name, )* }
            }

            /// The reply slot that the body names, for kinds that are answered.
            #[must_use]
            pub const fn reply(&self) -> Option<u32> {
                match self { $( Self::$name(_body) => kinds!(@slot _body $($reply)?), )* }
            }

            fn tail(&self) -> Option<u64> {
                match self { $( Self::$name(body) => Tail::tail(body), )* }
            }

            fn read(kind: Kind, bytes: &[u8]) -> Option<(Self, &[u8])> {
                match kind {
                    $( Kind::$name => <$ty>::read_from_prefix(bytes)
                        .ok().map(|(body, rest)| (Self::$name(body), rest)), )*
                }
            }
        }

        $( impl Payload for $ty { const KIND: Kind = Kind::$name; } )*
        $( kinds!(@round $ty, $($reply)?); )*

        /// Digest of the table: ids, names, sizes, offsets of every message that is no extension. Two builds
        /// whose digests differ do not understand each other.
        pub const TABLE_DIGEST: u64 = {
            let hash = crate::layout::FNV_START;
            $( let hash = if Kind::$name.ability().is_none() { digest::<$ty>(hash) } else { hash }; )*
            let hash = fnv1a(hash, &<crate::facts::HelloReply as Layout>::DIGEST.to_le_bytes());
            let hash = fnv1a(hash, &<crate::facts::DeviceFacts as Layout>::DIGEST.to_le_bytes());
            let hash = fnv1a(hash, &<session::WindowAllocReply as Layout>::DIGEST.to_le_bytes());
            let hash = fnv1a(hash, &<memory::MemInfoReply as Layout>::DIGEST.to_le_bytes());
            let hash = fnv1a(hash, &<module::FunctionReply as Layout>::DIGEST.to_le_bytes());
            let hash = fnv1a(hash, &<graph::GraphNode as Layout>::DIGEST.to_le_bytes());
            let hash = fnv1a(hash, &<Span as Layout>::DIGEST.to_le_bytes());
            let hash = fnv1a(hash, &<Mark as Layout>::DIGEST.to_le_bytes());
            let hash = fnv1a(hash, &<Header as Layout>::DIGEST.to_le_bytes());
            let hash = fnv1a(hash, &crate::area::FACTS.to_le_bytes());
            let hash = fnv1a(hash, &crate::area::STAGING.to_le_bytes());
            fnv1a(hash, &crate::area::AREA_BYTES.to_le_bytes())
        };

        /// Digest of the kinds that a host announces by `ability`, as [`TABLE_DIGEST`] is of the others. It
        /// is not compared at attach: what a bit means never changes.
        #[must_use]
        pub const fn extension_digest(ability: u32) -> u64 {
            let hash = crate::layout::FNV_START;
            $(
                let hash = match Kind::$name.ability() {
                    Some(bit) if bit == ability => digest::<$ty>(hash),
                    _ => hash,
                };
            )*
            hash
        }
    };
    (@ability $ability:ident) => { Some(crate::facts::exec::$ability) };
    (@ability) => { None };
    (@reply reply) => { true };
    (@reply) => { false };
    (@slot $body:ident reply) => { Some($body.reply) };
    (@slot $body:ident) => { None };
    (@round $ty:path, reply) => {
        impl RoundTrip for $ty { fn set_reply(&mut self, slot: u32) { self.reply = slot; } }
    };
    (@round $ty:path,) => {};
}

kinds! {
    /// Fills the ring to its end.
    0x0001 Pad(session::Pad);
    /// Greeting; answered by the device's facts.
    0x0002 Hello(session::Hello) reply;
    /// Round trip for its own sake.
    0x0003 Echo(session::Echo) reply;
    /// Window memory for the session.
    0x0004 WindowAlloc(session::WindowAlloc) reply;
    /// Window memory given back.
    0x0005 WindowFree(session::WindowFree);
    /// Guest pages become a segment.
    0x0006 PagesRegister(pages::PagesRegister) reply;
    /// A segment of guest pages ends.
    0x0007 PagesUnregister(pages::PagesUnregister) reply;

    /// Device memory.
    0x0101 MemAlloc(memory::MemAlloc) reply;
    /// Device memory given back.
    0x0102 MemFree(memory::MemFree);
    /// Free and total memory.
    0x0103 MemInfo(memory::MemInfo) reply;
    /// Device memory in the order of a stream.
    0x0104 MemAllocAsync(memory::MemAllocAsync) reply;
    /// Device memory given back in the order of a stream.
    0x0105 MemFreeAsync(memory::MemFreeAsync);
    /// Address space.
    0x0106 MemReserve(memory::MemReserve) reply;
    /// Address space given back.
    0x0107 MemUnreserve(memory::MemUnreserve);
    /// Physical memory.
    0x0108 MemCreate(memory::MemCreate) reply;
    /// Physical memory given back.
    0x0109 MemRelease(memory::MemRelease);
    /// Physical memory at an address.
    0x010a MemMap(memory::MemMap);
    /// No memory at an address.
    0x010b MemUnmap(memory::MemUnmap);
    /// Access rights of mappings.
    0x010c MemSetAccess(memory::MemSetAccess);

    /// Host to device.
    0x0201 CopyIn(copy::CopyIn);
    /// Device to host.
    0x0202 CopyOut(copy::CopyOut);
    /// Device to device.
    0x0203 CopyDevice(copy::CopyDevice);
    /// A box of rows.
    0x0204 CopyRows(copy::CopyRows);
    /// A value many times.
    0x0205 Fill(copy::Fill);

    /// A module, by digest.
    0x0301 ModuleOpen(module::ModuleOpen) reply;
    /// A piece of a module's image.
    0x0302 ModuleData(module::ModuleData);
    /// The image is complete.
    0x0303 ModuleLoad(module::ModuleLoad) reply;
    /// The end of a module.
    0x0304 ModuleUnload(module::ModuleUnload);
    /// A kernel and its attributes.
    0x0305 FunctionGet(module::FunctionGet) reply;
    /// A kernel's attribute.
    0x0306 FunctionSet(module::FunctionSet);
    /// How many blocks a multiprocessor holds.
    0x0307 Occupancy(module::Occupancy) reply;
    /// A variable's address.
    0x0308 GlobalGet(module::GlobalGet) reply;
    /// A link.
    0x0309 LinkOpen(link::LinkOpen) reply @ LINKS;
    /// An input of a link.
    0x030a LinkInput(link::LinkInput) @ LINKS;
    /// A piece of an input.
    0x030b LinkData(link::LinkData) @ LINKS;
    /// The inputs are complete.
    0x030c LinkComplete(link::LinkComplete) reply @ LINKS;
    /// A part of the linked image.
    0x030d LinkRead(link::LinkRead) reply @ LINKS;
    /// The end of a link.
    0x030e LinkClose(link::LinkClose) @ LINKS;

    /// A kernel launch.
    0x0401 Launch(launch::Launch);

    /// A stream.
    0x0501 StreamCreate(stream::StreamCreate);
    /// The end of a stream.
    0x0502 StreamDestroy(stream::StreamDestroy);
    /// A mark behind a stream's work.
    0x0503 Signal(stream::Signal);
    /// One more join.
    0x0504 Join(stream::Join);
    /// An event.
    0x0505 EventCreate(stream::EventCreate);
    /// The end of an event.
    0x0506 EventDestroy(stream::EventDestroy);
    /// An event's record.
    0x0507 EventRecord(stream::EventRecord);
    /// A stream waits for an event.
    0x0508 StreamWait(stream::StreamWait);
    /// A stream waits for the guest.
    0x0509 StreamHold(stream::StreamHold);
    /// The guest lets a stream go on.
    0x050a StreamRelease(stream::StreamRelease);

    /// An instantiated graph.
    0x0601 GraphDefine(graph::GraphDefine);
    /// Changes to a graph.
    0x0602 GraphUpdate(graph::GraphUpdate);
    /// A graph's launch.
    0x0603 GraphLaunch(graph::GraphLaunch);
    /// The end of a graph.
    0x0604 GraphDestroy(graph::GraphDestroy);

    /// Matrix products.
    0x0701 Gemm(gemm::Gemm);
    /// Triangular systems.
    0x0702 TriangularSolve(gemm::TriangularSolve);
    /// Matrix products with an epilogue.
    0x0703 MatmulLt(matmul::MatmulLt) @ EPILOGUES;
    /// Sums over vectors, and of vectors.
    0x0704 VectorOp(vector::VectorOp) @ VECTORS;
}

/// One message, decoded from a private copy of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The header as it was written.
    pub header: Header,
    /// The body.
    pub body: Body,
    /// The tail without its padding.
    pub tail: &'a [u8],
}

impl<'a> Message<'a> {
    /// Decodes the message at the start of `bytes`, which must be memory that nobody else writes.
    /// Checks everything that can be checked without the session's state.
    ///
    /// # Errors
    /// What is wrong with the bytes; nothing of them may be used then.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| DecodeError::Short)?;
        let kind = Kind::try_from(header.kind)?;
        let join = header.flags & FLAG_JOIN != 0;
        if header.flags & !KNOWN_FLAGS != 0 || (!join && header.join != 0) {
            return Err(DecodeError::Flags(header.flags));
        }
        let total = u64::from(header.bytes);
        let least = size_of::<Header>() + kind.body_bytes();
        if !total.is_multiple_of(MESSAGE_ALIGN) || total < least as u64 || total > crate::area::RING_BYTES {
            return Err(DecodeError::Size(header.bytes));
        }
        let rest = rest.get(..header.bytes as usize - size_of::<Header>()).ok_or(DecodeError::Short)?;
        let (body, rest) = Body::read(kind, rest).ok_or(DecodeError::Short)?;
        let tail = match body.tail() {
            None => rest,
            Some(bytes) => {
                // Exactly the stated bytes, then less than one alignment of padding.
                let room = rest.len() as u64;
                if bytes > room || room - bytes >= MESSAGE_ALIGN {
                    return Err(DecodeError::Tail(bytes));
                }
                &rest[..bytes as usize]
            }
        };
        Ok(Self { header, body, tail })
    }
}
