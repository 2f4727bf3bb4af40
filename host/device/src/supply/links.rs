//! A session's links: inputs that arrive from the guest, and the resulting images. The executor decides how
//! inputs become one image.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_wire::area::REPLY_DATA_MAX;
use vgpu_wire::body::link::{LinkInput, LinkOpen};

use crate::charges::charge::{Charge, Charges, OverLimit};
use crate::charges::limits::Resource;
use crate::session::violation::Violation;

/// Number of bytes that an input is charged besides its data and its name.
const INPUT_BYTES: u64 = 256;

/// Complete input of a link.
#[derive(Debug)]
pub struct CodeLinkInput {
    /// Name of the input, for log messages.
    pub name: String,
    /// Type of the input, a `CUjitInputType`.
    pub kind: u32,
    /// Bytes of the input.
    pub data: Vec<u8>,
    /// Length of the input in bytes, as the guest announced it.
    bytes: u64,
}

/// Reason for which the host does not accept an input.
#[derive(Debug, thiserror::Error)]
pub enum CodeLinkRefusal {
    /// The session would exceed a limit.
    #[error(transparent)]
    Over(#[from] OverLimit),
    /// An input is longer than the executor accepts, or than the host has memory for.
    #[error("an input of a link is longer than this device takes")]
    TooLong,
}

/// A link of code: its inputs, or the resulting image.
#[derive(Debug)]
pub struct CodeLink {
    open: LinkOpen,
    parts: Vec<CodeLinkInput>,
    /// Reason for which the host did not accept an input, if there is one.
    refused: Option<CodeLinkRefusal>,
    image: Option<Vec<u8>>,
    _count: Charge,
    bytes: Charge,
}

impl CodeLink {
    /// Calls `link` to make one image of the inputs, frees their memory, and keeps the image. Fails if an
    /// input was not accepted or the image exceeds a limit, both of which `room` converts to an error, or as
    /// `link` does.
    pub fn complete<R>(
        &mut self,
        room: impl Fn(&CodeLinkRefusal) -> R,
        link: impl FnOnce(&LinkOpen, Vec<CodeLinkInput>) -> Result<Vec<u8>, R>,
    ) -> Result<&[u8], R> {
        let parts = std::mem::take(&mut self.parts);
        let linked = match self.refused.take() {
            Some(refused) => Err(room(&refused)),
            None => link(&self.open, parts),
        };
        self.bytes.shrink_to(0);
        let image = linked?;
        self.bytes.grow(image.len() as u64).map_err(|over| room(&over.into()))?;
        Ok(self.image.insert(image))
    }
}

/// The links of a session.
#[derive(Debug)]
pub struct CodeLinks {
    links: HashMap<u32, CodeLink>,
    /// Length in bytes of the longest input that is accepted.
    most: u64,
}

impl CodeLinks {
    /// Makes an empty table. `most` is the length in bytes of the longest input that is accepted.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self { links: HashMap::new(), most }
    }

    /// Starts a link, to which inputs can be added.
    pub fn open(
        &mut self,
        charges: &Arc<Charges>,
        body: &LinkOpen,
    ) -> Result<Result<(), OverLimit>, Violation> {
        if self.links.contains_key(&body.link) {
            return Err(Violation::in_use("link", body.link));
        }
        let charged = charges
            .charge(Resource::Modules, 1)
            .and_then(|count| Ok((count, charges.charge(Resource::HostBytes, 0)?)));
        Ok(charged.map(|(count, bytes)| {
            let parts = Vec::new();
            let link = CodeLink { open: *body, parts, refused: None, image: None, _count: count, bytes };
            self.links.insert(body.link, link);
        }))
    }

    /// Returns a link that still accepts inputs.
    fn open_one(&mut self, link: u32) -> Result<&mut CodeLink, Violation> {
        let found = self.links.get_mut(&link).filter(|link| link.image.is_none());
        found.ok_or(Violation::unknown("link", link))
    }

    /// Starts an input. If the host may not hold it for the session, the link is refused when it is
    /// completed.
    pub fn input(&mut self, body: &LinkInput, name: &[u8]) -> Result<(), Violation> {
        let most = self.most;
        let link = self.open_one(body.link)?;
        let charged = body.bytes.saturating_add(INPUT_BYTES + name.len() as u64);
        let mut data = Vec::new();
        let refused = match link.bytes.grow(charged) {
            Err(over) => Some(over.into()),
            Ok(()) if body.bytes > most || data.try_reserve_exact(body.bytes as usize).is_err() => {
                Some(CodeLinkRefusal::TooLong)
            }
            Ok(()) => None,
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let bytes = if refused.is_some() { 0 } else { body.bytes };
        link.refused = link.refused.take().or(refused);
        link.parts.push(CodeLinkInput { name, kind: body.kind, bytes, data });
        Ok(())
    }

    /// Receives a piece of `bytes` bytes of the newest input, which `copy` writes to its position. `offset`
    /// must be the end of the piece before. Once an input was not accepted, pieces are dropped.
    pub fn data(
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

    /// Removes a link whose inputs are complete, so that any thread can complete it. The caller [puts it
    /// back](Self::put).
    pub fn remove(&mut self, number: u32) -> Result<CodeLink, Violation> {
        let link = self.open_one(number)?;
        if link.parts.iter().any(|part| (part.data.len() as u64) < part.bytes) {
            return Err(Violation::unknown("link", number));
        }
        self.links.remove(&number).ok_or(Violation::unknown("link", number))
    }

    /// Returns a link that [`Self::remove`] has removed.
    pub fn put(&mut self, number: u32, link: CodeLink) {
        self.links.insert(number, link);
    }

    /// Returns the bytes of the image from `offset` on, limited to the size of an answer.
    pub fn read(&self, link: u32, offset: u64) -> Result<&[u8], Violation> {
        let image = self.links.get(&link).and_then(|link| link.image.as_ref());
        let image = image.ok_or(Violation::unknown("link", link))?;
        let rest = usize::try_from(offset).ok().and_then(|offset| image.get(offset..)).unwrap_or_default();
        Ok(&rest[..rest.len().min(REPLY_DATA_MAX as usize)])
    }

    /// Ends a link and frees its inputs and its image.
    pub fn close(&mut self, link: u32) -> Result<(), Violation> {
        self.links.remove(&link).map(drop).ok_or(Violation::unknown("link", link))
    }
}
