//! Checks of every message before it has any effect, beyond those of decoding: reserved fields, reply slots,
//! marks, spans, and values that the contract enumerates. The executor checks what depends on its own state,
//! such as handles and device addresses.

use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS};
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, LAUNCH_PROGRAMMATIC, PARAM_BYTES_MAX};
use vgpu_wire::body::link::{INPUT_LIBRARY, INPUT_NAME_MOST, LINK_DEBUG, LINK_LINES};
use vgpu_wire::body::matmul::Epilogue;
use vgpu_wire::body::memory::MEM_MANAGED;
use vgpu_wire::body::module::{IMAGE_CUBIN, IMAGE_PTX};
use vgpu_wire::body::stream::STREAM_NON_BLOCKING;
use vgpu_wire::body::vector::{VECTOR_AXPY, VECTOR_DOT};
use vgpu_wire::{Body, JOIN_ALL, Mark, SEGMENT_INLINE, Span, area};

use crate::saved::error::RestoreError;
use crate::session::host::SessionHost;
use crate::session::violation::Violation;

/// The marks that a session has promised so far.
#[derive(Debug)]
pub(crate) struct Checks {
    /// Highest promised value of each completion word.
    promised: Box<[u64]>,
}

impl Checks {
    pub(crate) fn new() -> Self {
        Self { promised: vec![0; area::WORDS as usize].into_boxed_slice() }
    }

    /// Checks a message's body.
    pub(crate) fn message(&mut self, host: &SessionHost, body: &Body) -> Result<(), Violation> {
        if let Some(slot) = body.reply()
            && slot >= area::REPLIES
        {
            return Err(Violation::Slot(slot));
        }
        fields(host, body)?;
        match mark_of(body) {
            Some(mark) => self.promise(mark),
            None => Ok(()),
        }
    }

    /// Returns word and value of every promise.
    pub(crate) fn save(&self) -> Vec<(u32, u64)> {
        let words = (0_u32..).zip(&self.promised).map(|(word, &value)| (word, value));
        words.filter(|&(_, value)| value > 0).collect()
    }

    /// Takes over the promises of a saved session.
    pub(crate) fn restore(promised: &[(u32, u64)]) -> Result<Self, RestoreError> {
        let mut checks = Self::new();
        for &(word, value) in promised {
            let place = checks.promised.get_mut(word as usize).filter(|_| word > 0);
            *place.ok_or_else(|| RestoreError::field("completion word", word))? = value;
        }
        Ok(checks)
    }

    /// Records a mark. Its value must not be below an earlier one of the same word.
    fn promise(&mut self, mark: &Mark) -> Result<(), Violation> {
        word(mark)?;
        if mark.word == 0 {
            return Ok(());
        }
        let promised = &mut self.promised[mark.word as usize];
        if mark.value < *promised {
            return Err(Violation::Decreasing { word: mark.word, before: *promised, value: mark.value });
        }
        *promised = mark.value;
        Ok(())
    }
}

/// Checks the body of a graph's node. Its mark is stored by each launch, so its value may repeat and
/// fall behind; the word itself never decreases.
pub(crate) fn node(host: &SessionHost, body: &Body) -> Result<(), Violation> {
    fields(host, body)?;
    mark_of(body).map_or(Ok(()), word)
}

/// Returns the mark that a body names, if its kind has one.
pub(crate) fn mark_of(body: &Body) -> Option<&Mark> {
    match body {
        Body::CopyIn(b) => Some(&b.read),
        Body::CopyOut(b) => Some(&b.written),
        Body::Signal(b) => Some(&b.mark),
        Body::EventRecord(b) => Some(&b.mark),
        Body::StreamHold(b) => Some(&b.mark),
        _ => None,
    }
}

fn word(mark: &Mark) -> Result<(), Violation> {
    zero(mark.reserved)?;
    if mark.word < area::WORDS { Ok(()) } else { Err(Violation::Word(mark.word)) }
}

#[inline]
fn zero(reserved: impl Into<u64>) -> Result<(), Violation> {
    if reserved.into() == 0 { Ok(()) } else { Err(Violation::Reserved) }
}

fn known(field: &'static str, value: u32, bits: u32) -> Result<(), Violation> {
    if value & !bits == 0 { Ok(()) } else { Err(Violation::Field { field, value: value.into() }) }
}

/// Checks a number that a guest assigns to a new handle.
fn minted(field: &'static str, number: u32) -> Result<(), Violation> {
    if number == 0 || number == JOIN_ALL {
        return Err(Violation::Field { field, value: number.into() });
    }
    Ok(())
}

/// Checks a span that may be the message's own tail. Decoding has checked the length of a tail.
fn source(host: &SessionHost, span: &Span) -> Result<(), Violation> {
    if span.segment == SEGMENT_INLINE {
        zero(span.reserved)?;
        return zero(span.offset);
    }
    host.piece(span).map(drop)
}

fn fields(host: &SessionHost, body: &Body) -> Result<(), Violation> {
    match body {
        Body::Pad(_)
        | Body::WindowAlloc(_)
        | Body::WindowFree(_)
        | Body::PagesUnregister(_)
        | Body::MemFree(_)
        | Body::MemAllocAsync(_)
        | Body::MemUnreserve(_)
        | Body::MemCreate(_)
        | Body::MemUnmap(_)
        | Body::ModuleLoad(_)
        | Body::FunctionGet(_)
        | Body::Occupancy(_)
        | Body::EventCreate(_)
        | Body::EventRecord(_)
        | Body::StreamWait(_)
        | Body::GraphLaunch(_)
        | Body::LinkComplete(_)
        | Body::LinkRead(_) => Ok(()),
        Body::Hello(b) => zero(b.reserved),
        Body::Echo(b) => zero(b.reserved),
        Body::PagesRegister(b) => zero(b.reserved),
        Body::MemAlloc(b) => known("the allocation's flags", b.flags, MEM_MANAGED),
        Body::MemInfo(b) => zero(b.reserved),
        Body::MemFreeAsync(b) => zero(b.reserved),
        Body::MemReserve(b) => zero(b.reserved),
        Body::MemRelease(b) => zero(b.reserved),
        Body::MemMap(b) => zero(b.reserved),
        Body::MemSetAccess(b) => zero(b.reserved),
        Body::CopyIn(b) => {
            zero(b.reserved)?;
            source(host, &b.source)
        }
        Body::CopyOut(b) => {
            zero(b.reserved)?;
            host.piece(&b.destination).map(drop)
        }
        Body::CopyDevice(b) => zero(b.reserved),
        Body::CopyRows(b) => zero(b.reserved),
        Body::Fill(b) => {
            zero(b.reserved)?;
            if matches!(b.element, 1 | 2 | 4) {
                return Ok(());
            }
            Err(Violation::Field { field: "the fill's element size", value: b.element.into() })
        }
        Body::ModuleOpen(b) => {
            zero(b.reserved)?;
            if matches!(b.image, IMAGE_PTX | IMAGE_CUBIN) {
                return Ok(());
            }
            Err(Violation::Field { field: "the image's kind", value: b.image.into() })
        }
        Body::ModuleData(b) => {
            zero(b.reserved)?;
            source(host, &b.data)
        }
        Body::ModuleUnload(b) => zero(b.reserved),
        Body::FunctionSet(b) => zero(b.reserved),
        Body::GlobalGet(b) => zero(b.reserved),
        Body::Launch(b) => {
            zero(b.reserved)?;
            known("the launch's flags", b.flags, LAUNCH_COOPERATIVE | LAUNCH_PROGRAMMATIC)?;
            if b.param_bytes <= PARAM_BYTES_MAX {
                return Ok(());
            }
            Err(Violation::Field { field: "the launch's parameter size", value: b.param_bytes.into() })
        }
        Body::StreamCreate(b) => {
            zero(b.reserved)?;
            minted("the new stream's number", b.stream)?;
            known("the stream's flags", b.flags, STREAM_NON_BLOCKING)
        }
        Body::StreamDestroy(b) => zero(b.reserved),
        Body::Signal(b) => zero(b.reserved),
        Body::Join(b) => zero(b.reserved),
        Body::StreamHold(b) => minted("the new hold's number", b.hold),
        Body::StreamRelease(b) => zero(b.reserved),
        Body::EventDestroy(b) => zero(b.reserved),
        Body::GraphDefine(b) => source(host, &b.records),
        Body::GraphUpdate(b) => {
            zero(b.reserved)?;
            source(host, &b.records)
        }
        Body::GraphDestroy(b) => zero(b.reserved),
        Body::Gemm(b) => known("the product's flags", b.flags, GEMM_POINTERS | GEMM_DEVICE_SCALARS),
        Body::TriangularSolve(b) => {
            zero(b.reserved)?;
            known("the solve's flags", b.flags, GEMM_POINTERS | GEMM_DEVICE_SCALARS)
        }
        Body::MatmulLt(b) => {
            zero(b.reserved[0] | b.reserved[1])?;
            known("the product's flags", b.flags, GEMM_DEVICE_SCALARS)?;
            if Epilogue::from_number(b.epilogue).is_some() {
                return Ok(());
            }
            Err(Violation::Field { field: "the product's epilogue", value: b.epilogue.into() })
        }
        Body::LinkOpen(b) => {
            zero(b.reserved)?;
            minted("the new link's number", b.link)?;
            known("the link's flags", b.flags, LINK_DEBUG | LINK_LINES)
        }
        Body::LinkInput(b) => {
            zero(b.reserved)?;
            if b.kind > INPUT_LIBRARY {
                return Err(Violation::Field { field: "the input's kind", value: b.kind.into() });
            }
            if b.name_bytes <= INPUT_NAME_MOST {
                return Ok(());
            }
            Err(Violation::Field { field: "the input's name", value: b.name_bytes.into() })
        }
        Body::LinkData(b) => {
            zero(b.reserved)?;
            source(host, &b.data)
        }
        Body::LinkClose(b) => zero(b.reserved),
        Body::VectorOp(b) => {
            zero(b.reserved)?;
            known("the vector operation's flags", b.flags, GEMM_DEVICE_SCALARS)?;
            if (VECTOR_DOT..=VECTOR_AXPY).contains(&b.operation) {
                return Ok(());
            }
            Err(Violation::Field { field: "the vector operation", value: b.operation.into() })
        }
    }
}
