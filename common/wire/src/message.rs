//! The message: its header, the table of kinds, and the decoder.

use zerocopy::{FromBytes, IntoBytes};

use crate::body::{copy, gemm, graph, launch, link, matmul, memory, module, pages, session, stream, vector};
use crate::layout::{Layout, fnv1a};
use crate::span::{Mark, Span};

/// Alignment in bytes of each message in the ring, and granularity of its length.
pub const MESSAGE_ALIGN: u64 = 16;

/// [`Header::flags`]: this message and all later work of the session start after the work that the stream in
/// [`Header::join`] has been given so far.
pub const FLAG_JOIN: u16 = 1 << 0;
/// All flags that exist; any other bit is a violation.
pub const KNOWN_FLAGS: u16 = FLAG_JOIN;

/// Value of [`Header::join`] and of [`stream::Signal::stream`] that names every stream of the session.
pub const JOIN_ALL: u32 = u32::MAX;

wire_struct! {
    /// Header of every message.
    pub struct Header = 16 {
        /// Number of the [`Kind`], which determines the body.
        pub kind: u16 = 0,
        /// Flags of the message: [`FLAG_JOIN`] or 0.
        pub flags: u16 = 2,
        /// Length of the whole message in bytes, header and padding included; a multiple of
        /// [`MESSAGE_ALIGN`].
        pub bytes: u32 = 4,
        /// Low half of the message's number in its session. Numbers start at 1 and have no gaps.
        pub number: u32 = 8,
        /// Stream to join, or [`JOIN_ALL`], when [`FLAG_JOIN`] is set; otherwise 0.
        pub join: u32 = 12,
    }
}

/// Returns `bytes` rounded up to a multiple of [`MESSAGE_ALIGN`].
#[must_use]
pub const fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(MESSAGE_ALIGN) * MESSAGE_ALIGN
}

/// A body that can be sent, because its type determines the kind.
pub trait Payload: IntoBytes + zerocopy::Immutable {
    /// Kind of the message, which the header states.
    const KIND: Kind;
}

/// A body of a kind that the host answers.
pub trait RoundTrip: Payload {
    /// Stores the index of the reply slot that is to take the answer.
    fn set_reply(&mut self, slot: u32);
}

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// There are fewer bytes than a header has, or than the header states.
    Short,
    /// The stated length is not a multiple of [`MESSAGE_ALIGN`], is too short for the kind's body, or is
    /// longer than the ring.
    Size(u32),
    /// No kind has this number.
    Kind(u16),
    /// A flag is unknown, or [`Header::join`] is set without [`FLAG_JOIN`].
    Flags(u16),
    /// The body states a tail of this many bytes, which does not fit the length of the message.
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

/// Continues a digest with a kind's name, its number and the layout of its body.
const fn digest<P: Payload + Layout>(hash: u64) -> u64 {
    let hash = fnv1a(hash, P::KIND.name().as_bytes());
    let hash = fnv1a(hash, &(P::KIND as u64).to_le_bytes());
    fnv1a(hash, &P::DIGEST.to_le_bytes())
}

macro_rules! kinds {
    ($(
        $(#[$meta:meta])*
        $id:literal $name:ident($ty:path) $($reply:ident)? $(@ $ability:ident)?
            $(, tail |$body:ident| $tail:expr)?;
    )*) => {
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

            /// Returns the name of the kind, for logs and counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// Returns the length in bytes of the kind's body, without header and tail.
            #[must_use]
            pub const fn body_bytes(self) -> usize {
                match self { $( Self::$name => size_of::<$ty>(), )* }
            }

            /// Returns whether the kind is answered in a reply slot.
            #[must_use]
            pub const fn replies(self) -> bool {
                match self { $( Self::$name => kinds!(@reply $($reply)?), )* }
            }

            /// Returns the bit of [`DeviceFacts::abilities`](crate::facts::DeviceFacts::abilities) by which a
            /// host announces the kind, or `None` if every host knows it.
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
            /// Returns the kind whose body this is.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $( Self::$name(_) => Kind::$name, )* }
            }

            /// Returns the reply slot that the body names, for kinds that are answered.
            #[must_use]
            pub const fn reply(&self) -> Option<u32> {
                match self { $( Self::$name(_body) => kinds!(@slot _body $($reply)?), )* }
            }

            /// Returns the length in bytes of the tail that the body states, 0 unless its row says otherwise,
            /// or `None` if the tail is all that remains of the message, and means nothing.
            fn tail(&self) -> Option<u64> {
                match self { $( Self::$name(_body) => kinds!(@tail _body $(|$body| $tail)?), )* }
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

        /// Digest of the names, numbers, sizes and offsets of all kinds that are not extensions. Builds with
        /// different digests do not understand each other.
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

        /// Returns the digest of the kinds that a host announces by `ability`, computed as [`TABLE_DIGEST`].
        /// It is not compared at attach, because the meaning of a bit never changes.
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
    (@tail $value:ident |$body:ident| $tail:expr) => {{
        let $body = $value;
        $tail
    }};
    (@tail $value:ident) => { Some(0) };
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
    /// Fills the ring to its end, so that the next message starts at the ring's first byte.
    0x0001 Pad(session::Pad), tail |_body| None;
    /// Greets the host as the first message of a session. The answer has the device's facts.
    0x0002 Hello(session::Hello) reply;
    /// Makes a round trip and nothing else, to measure it or to wait for all earlier messages to be read.
    0x0003 Echo(session::Echo) reply;
    /// Allocates window memory for the session.
    0x0004 WindowAlloc(session::WindowAlloc) reply;
    /// Frees window memory of the session.
    0x0005 WindowFree(session::WindowFree);
    /// Registers guest pages as a segment of shared memory.
    0x0006 PagesRegister(pages::PagesRegister) reply,
        tail |body| Some(u64::from(body.runs) * size_of::<pages::PageRun>() as u64);
    /// Ends the registration of a segment of guest pages.
    0x0007 PagesUnregister(pages::PagesUnregister) reply;

    /// Allocates device memory (`cuMemAlloc`).
    0x0101 MemAlloc(memory::MemAlloc) reply;
    /// Frees device memory (`cuMemFree`).
    0x0102 MemFree(memory::MemFree);
    /// Asks for free and total device memory (`cuMemGetInfo`).
    0x0103 MemInfo(memory::MemInfo) reply;
    /// Allocates device memory in stream order (`cuMemAllocAsync`).
    0x0104 MemAllocAsync(memory::MemAllocAsync) reply;
    /// Frees device memory in stream order (`cuMemFreeAsync`).
    0x0105 MemFreeAsync(memory::MemFreeAsync);
    /// Reserves a range of device addresses (`cuMemAddressReserve`).
    0x0106 MemReserve(memory::MemReserve) reply;
    /// Frees a reserved range of device addresses (`cuMemAddressFree`).
    0x0107 MemUnreserve(memory::MemUnreserve);
    /// Allocates physical memory (`cuMemCreate`).
    0x0108 MemCreate(memory::MemCreate) reply;
    /// Releases physical memory (`cuMemRelease`).
    0x0109 MemRelease(memory::MemRelease);
    /// Maps physical memory at a reserved address (`cuMemMap`).
    0x010a MemMap(memory::MemMap);
    /// Unmaps physical memory (`cuMemUnmap`).
    0x010b MemUnmap(memory::MemUnmap);
    /// Sets the access rights of mappings (`cuMemSetAccess`).
    0x010c MemSetAccess(memory::MemSetAccess);

    /// Copies shared memory to the device (H2D).
    0x0201 CopyIn(copy::CopyIn), tail |body| Some(body.source.tail_bytes());
    /// Copies device memory to shared memory (D2H).
    0x0202 CopyOut(copy::CopyOut);
    /// Copies within the device (D2D).
    0x0203 CopyDevice(copy::CopyDevice);
    /// Copies rows within the device, with a pitch on either side (`cuMemcpy2D`, `cuMemcpy3D`).
    0x0204 CopyRows(copy::CopyRows);
    /// Fills device memory with a repeated value (`cuMemsetD8` and others).
    0x0205 Fill(copy::Fill);

    /// Opens a module by the digest of its image.
    0x0301 ModuleOpen(module::ModuleOpen) reply;
    /// Sends a piece of a module's image.
    0x0302 ModuleData(module::ModuleData), tail |body| Some(body.data.tail_bytes());
    /// Loads a module whose image is complete.
    0x0303 ModuleLoad(module::ModuleLoad) reply;
    /// Unloads a module (`cuModuleUnload`).
    0x0304 ModuleUnload(module::ModuleUnload);
    /// Looks up a kernel of a module and returns its attributes.
    0x0305 FunctionGet(module::FunctionGet) reply, tail |body| Some(u64::from(body.name_bytes));
    /// Sets an attribute of a kernel (`cuFuncSetAttribute`).
    0x0306 FunctionSet(module::FunctionSet);
    /// Asks how many blocks of a kernel fit on a multiprocessor.
    0x0307 Occupancy(module::Occupancy) reply;
    /// Looks up the address of a module's variable (`cuModuleGetGlobal`).
    0x0308 GlobalGet(module::GlobalGet) reply, tail |body| Some(u64::from(body.name_bytes));
    /// Starts a link (`cuLinkCreate`).
    0x0309 LinkOpen(link::LinkOpen) reply @ LINKS;
    /// Announces one more input of a link (`cuLinkAddData`).
    0x030a LinkInput(link::LinkInput) @ LINKS, tail |body| Some(u64::from(body.name_bytes));
    /// Sends a piece of the newest input of a link.
    0x030b LinkData(link::LinkData) @ LINKS, tail |body| Some(body.data.tail_bytes());
    /// Links the inputs (`cuLinkComplete`).
    0x030c LinkComplete(link::LinkComplete) reply @ LINKS;
    /// Reads a part of the linked image.
    0x030d LinkRead(link::LinkRead) reply @ LINKS;
    /// Ends a link (`cuLinkDestroy`).
    0x030e LinkClose(link::LinkClose) @ LINKS;

    /// Launches a kernel (`cuLaunchKernel`).
    0x0401 Launch(launch::Launch), tail |body| Some(u64::from(body.param_bytes));

    /// Creates a stream (`cuStreamCreateWithPriority`).
    0x0501 StreamCreate(stream::StreamCreate);
    /// Destroys a stream (`cuStreamDestroy`).
    0x0502 StreamDestroy(stream::StreamDestroy);
    /// Stores a mark once the earlier work of a stream has completed.
    0x0503 Signal(stream::Signal);
    /// Adds a join, where one message has to name more than one stream.
    0x0504 Join(stream::Join);
    /// Creates an event (`cuEventCreate`).
    0x0505 EventCreate(stream::EventCreate);
    /// Destroys an event (`cuEventDestroy`).
    0x0506 EventDestroy(stream::EventDestroy);
    /// Records an event in a stream (`cuEventRecord`).
    0x0507 EventRecord(stream::EventRecord);
    /// Makes a stream wait for an event (`cuStreamWaitEvent`).
    0x0508 StreamWait(stream::StreamWait);
    /// Stops a stream until the guest has run a host function (`cuLaunchHostFunc`).
    0x0509 StreamHold(stream::StreamHold);
    /// Lets a held stream continue.
    0x050a StreamRelease(stream::StreamRelease);

    /// Instantiates a graph (`cuGraphInstantiate`).
    0x0601 GraphDefine(graph::GraphDefine), tail |body| Some(body.records.tail_bytes());
    /// Replaces nodes of a graph (`cuGraphExecUpdate`).
    0x0602 GraphUpdate(graph::GraphUpdate), tail |body| Some(body.records.tail_bytes());
    /// Launches a graph (`cuGraphLaunch`).
    0x0603 GraphLaunch(graph::GraphLaunch);
    /// Destroys a graph (`cuGraphExecDestroy`).
    0x0604 GraphDestroy(graph::GraphDestroy);

    /// Multiplies matrices, once or for a batch (`cublasGemmEx` and others).
    0x0701 Gemm(gemm::Gemm);
    /// Solves triangular systems (`cublas<t>trsm` and `...Batched`).
    0x0702 TriangularSolve(gemm::TriangularSolve);
    /// Multiplies matrices with an epilogue, or with a C that is not D (`cublasLtMatmul`).
    0x0703 MatmulLt(matmul::MatmulLt) @ EPILOGUES;
    /// Reduces vectors or adds one to another (`cublas<t>dot`, `nrm2`, `asum`, `axpy`).
    0x0704 VectorOp(vector::VectorOp) @ VECTORS;
}

/// A message, decoded from a private copy of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Header as the guest wrote it.
    pub header: Header,
    /// Decoded body of the kind that the header names.
    pub body: Body,
    /// Tail without its padding.
    pub tail: &'a [u8],
}

impl<'a> Message<'a> {
    /// Decodes the message at the start of `bytes`, which must be memory that nobody else writes. Checks
    /// everything that can be checked without the session's state.
    ///
    /// # Errors
    /// Returns the first violation found. No part of the bytes may be used then.
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
