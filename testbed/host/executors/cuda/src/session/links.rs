//! Messages of the driver's linker. Inputs are kept as they come; the driver sees them all at once, when the
//! guest completes the link, so that its state lives no longer than that message takes. The thread that reads
//! the session's ring waits for the compiler, as it does when code is loaded.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{LinkRoom, SessionError, Violation, Work};
use vgpu_wire::Body;
use vgpu_wire::body::link::{LinkData, LinkReply};
use vgpu_wire::body::module::{IMAGE_CUBIN, IMAGE_PTX};

use super::CudaSession;
use crate::driver::link;
use crate::gpu::code::Refusal;

/// The first byte of a cubin, which is an ELF file; no text starts with it.
const ELF: u8 = 0x7f;

impl CudaSession {
    /// Inputs, and the end of a link: nobody answers these.
    pub(super) fn link_input(&mut self, work: &Work<'_>) -> Result<(), Violation> {
        match &work.message.body {
            Body::LinkInput(body) => self.links.input(body, work.message.tail),
            Body::LinkData(body) => self.link_data(work, body),
            Body::LinkClose(body) => self.links.close(body.link),
            _ => Ok(()),
        }
    }

    /// Takes a piece of an input.
    fn link_data(&mut self, work: &Work<'_>, body: &LinkData) -> Result<(), Violation> {
        self.host.take_data(&body.data, work.message.tail, |bytes, copy| {
            self.links.data(body.link, body.offset, bytes, copy)
        })
    }

    /// What is answered of a link.
    pub(super) fn link(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::LinkOpen(body) => {
                let opened = self.links.open(self.host.charges(), body)?;
                self.say(work, opened.map_err(Refusal::from));
            }
            Body::LinkComplete(body) => {
                let Some(context) = self.start(work.number)?.map(|part| Arc::clone(&part.context)) else {
                    self.answer_without_context(work);
                    return Ok(());
                };
                let done = self.links.complete(body.link, room, |open, parts| {
                    let mut image = link::link(&context, open, parts)?;
                    if image.first() != Some(&ELF) {
                        // The guest has a text without the zero that ends it for the driver.
                        while image.pop_if(|&mut last| last == 0).is_some() {}
                    }
                    Ok(image)
                })?;
                let reply = done.map(|image| {
                    let kind = if image.first() == Some(&ELF) { IMAGE_CUBIN } else { IMAGE_PTX };
                    LinkReply { image: kind, reserved: 0, bytes: image.len() as u64 }
                });
                self.say(work, reply);
            }
            Body::LinkRead(body) => {
                let data = self.links.read(body.link, body.offset)?;
                self.answer(work, CUresult::SUCCESS.0, data);
            }
            _ => {}
        }
        Ok(())
    }
}

/// How the guest is told that the host did not take an input.
fn room(room: &LinkRoom) -> Refusal {
    Refusal { code: CUresult::OUT_OF_MEMORY.0, why: room.to_string() }
}
