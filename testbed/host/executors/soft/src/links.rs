//! A session's links: inputs on their way from the guest, and what was linked of them.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use vgpu_device::{Charge, Resource, Violation};
use vgpu_ptx::{Effort, Input, LinkError, Spent};
use vgpu_wire::area::REPLY_DATA_MAX;
use vgpu_wire::body::link::{INPUT_PTX, LinkInput, LinkReply};
use vgpu_wire::body::module::IMAGE_PTX;

use crate::modules::{Refusal, refused};
use crate::runner::Runner;
use crate::status;

/// What an input is charged besides its bytes and its name.
const INPUT_BYTES: u64 = 256;

/// An input.
#[derive(Debug)]
struct Part {
    name: String,
    kind: u32,
    /// How long it is to be.
    bytes: u64,
    data: Vec<u8>,
}

/// A link: what comes, or what came of it.
#[derive(Debug)]
struct Link {
    parts: Vec<Part>,
    /// An input that the host did not take.
    refused: Option<Refusal>,
    image: Option<Vec<u8>>,
    _count: Charge,
    bytes: Charge,
}

/// The links of a session.
#[derive(Debug, Default)]
pub(crate) struct Links(HashMap<u32, Link>);

impl Links {
    /// Begins a link.
    pub(crate) fn open(&mut self, runner: &Runner, link: u32) -> Result<Result<(), Refusal>, Violation> {
        if self.0.contains_key(&link) {
            return Err(Violation::in_use("link", link));
        }
        let charges = runner.host.charges();
        let charged = charges
            .take(Resource::Modules, 1)
            .and_then(|count| Ok((count, charges.take(Resource::HostBytes, 0)?)));
        Ok(charged.map_err(|over| refused(runner, &over)).map(|(count, bytes)| {
            let parts = Vec::new();
            self.0.insert(link, Link { parts, refused: None, image: None, _count: count, bytes });
        }))
    }

    /// A link that still takes inputs.
    fn open_one(&mut self, link: u32) -> Result<&mut Link, Violation> {
        let found = self.0.get_mut(&link).filter(|link| link.image.is_none());
        found.ok_or(Violation::unknown("link", link))
    }

    /// Begins an input. One that the session may not make the host hold is refused when the link is
    /// completed.
    pub(crate) fn input(&mut self, runner: &Runner, body: &LinkInput, name: &[u8]) -> Result<(), Violation> {
        let link = self.open_one(body.link)?;
        let charged = body.bytes.saturating_add(INPUT_BYTES + name.len() as u64);
        let mut data = Vec::new();
        let refused = match link.bytes.grow(charged) {
            Err(over) => Some(refused(runner, &over)),
            Ok(())
                if body.bytes > vgpu_ptx::TEXT_MOST
                    || data.try_reserve_exact(body.bytes as usize).is_err() =>
            {
                Some(Refusal::new(
                    status::OUT_OF_MEMORY,
                    "an input of a link is longer than this device takes",
                ))
            }
            Ok(()) => None,
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let bytes = if refused.is_some() { 0 } else { body.bytes };
        link.refused = link.refused.take().or(refused);
        link.parts.push(Part { name, kind: body.kind, bytes, data });
        Ok(())
    }

    /// Takes a piece of the newest input of `bytes` bytes: `copy` puts it where it is told.
    pub(crate) fn data(
        &mut self,
        link: u32,
        offset: u64,
        bytes: u64,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), Violation> {
        let link = self.open_one(link)?;
        if link.refused.is_some() {
            return Ok(());
        }
        let wrong = Violation::Field { field: "the offset of a piece of an input", value: offset };
        let Some(part) = link.parts.last_mut() else { return Err(wrong) };
        let start = part.data.len();
        if offset != start as u64 || bytes > part.bytes - offset {
            return Err(wrong);
        }
        part.data.resize(start + bytes as usize, 0);
        copy(&mut part.data[start..]);
        Ok(())
    }

    /// Links the inputs, whose memory is returned.
    pub(crate) fn complete(
        &mut self,
        runner: &Runner,
        number: u32,
    ) -> Result<Result<LinkReply, Refusal>, Violation> {
        let link = self.open_one(number)?;
        let parts = std::mem::take(&mut link.parts);
        if parts.iter().any(|part| (part.data.len() as u64) < part.bytes) {
            return Err(Violation::unknown("link", number));
        }
        let linked = match link.refused.take() {
            Some(refusal) => Err(refusal),
            None => linked(runner, &parts),
        };
        drop(parts);
        link.bytes.shrink_to(0);
        let linked = linked.and_then(|text| {
            link.bytes.grow(text.len() as u64).map_err(|over| refused(runner, &over))?;
            Ok(text)
        });
        Ok(linked.map(|text| {
            let bytes = text.len() as u64;
            link.image = Some(text);
            LinkReply { image: IMAGE_PTX, reserved: 0, bytes }
        }))
    }

    /// Bytes of the image from `offset` on, as many as an answer holds.
    pub(crate) fn read(&self, link: u32, offset: u64) -> Result<&[u8], Violation> {
        let image = self.0.get(&link).and_then(|link| link.image.as_ref());
        let image = image.ok_or(Violation::unknown("link", link))?;
        let rest = usize::try_from(offset).ok().and_then(|offset| image.get(offset..)).unwrap_or_default();
        Ok(&rest[..rest.len().min(REPLY_DATA_MAX as usize)])
    }

    /// Ends a link.
    pub(crate) fn close(&mut self, link: u32) -> Result<(), Violation> {
        self.0.remove(&link).map(drop).ok_or(Violation::unknown("link", link))
    }
}

/// Links inputs that are there. The device keeps the image as one that was brought, so that its module need
/// not be.
fn linked(runner: &Runner, parts: &[Part]) -> Result<Vec<u8>, Refusal> {
    if let Some(part) = parts.iter().find(|part| part.kind != INPUT_PTX) {
        let why = format!("{}: this device links PTX text, not compiled code", part.name);
        return Err(Refusal::new(status::NO_BINARY_FOR_GPU, &why));
    }
    let inputs: Vec<Input<'_>> =
        parts.iter().map(|part| Input { name: &part.name, text: &part.data }).collect();
    let interrupt = runner.limited();
    let linked = vgpu_ptx::link(&inputs, &Effort::unlimited(interrupt.clone()));
    let text = linked.map_err(|error| Refusal::new(code(&error), &error))?;
    let mut copy = Vec::new();
    if copy.try_reserve_exact(text.len()).is_err() {
        return Err(Refusal::new(status::OUT_OF_MEMORY, "the host has no memory for the linked text"));
    }
    copy.extend_from_slice(&text);
    let brought = runner.device.images.bring(Sha256::digest(&text).into(), copy, &interrupt);
    brought.map_err(|error| Refusal::new(error.code(), &error))?;
    Ok(text)
}

/// The `CUresult` of CUDA's own linker.
const fn code(error: &LinkError) -> u32 {
    match error {
        LinkError::Ptx { error: vgpu_ptx::PtxError::Spent(Spent::Halted(_)), .. } => status::LAUNCH_TIMEOUT,
        LinkError::Ptx { .. } => status::INVALID_PTX,
        LinkError::Empty => status::INVALID_VALUE,
        LinkError::Twice { .. } | LinkError::Undefined { .. } => status::UNKNOWN,
        LinkError::TooLong(_) => status::OUT_OF_MEMORY,
    }
}
