//! Messages of the driver's linker. Inputs are kept as they come; the driver sees them all at once, when the
//! guest completes the link, so that its state lives no longer than that takes. It is done by the thread that
//! loads modules; a message that names the link comes after it.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{CodeRefusal, LinkRoom, SessionError, Violation, Work};
use vgpu_wire::Body;
use vgpu_wire::body::link::{LinkData, LinkReply};
use vgpu_wire::body::module::{IMAGE_CUBIN, IMAGE_PTX};

use super::CudaSession;
use crate::driver::link;

/// The first byte of a cubin, which is an ELF file; no text starts with it.
const ELF: u8 = 0x7f;

impl CudaSession {
    /// Inputs, and the end of a link: nobody answers these.
    pub(super) fn link_input(&mut self, work: &Work<'_>) -> Result<(), Violation> {
        match &work.message.body {
            Body::LinkInput(body) => {
                self.settle_link(body.link);
                self.links.input(body, work.message.tail)
            }
            Body::LinkData(body) => {
                self.settle_link(body.link);
                self.link_data(work, body)
            }
            Body::LinkClose(body) => {
                self.settle_link(body.link);
                self.links.close(body.link)
            }
            _ => Ok(()),
        }
    }

    /// Takes over the links that have been completed, `link` among them.
    fn settle_link(&mut self, link: u32) {
        for (number, link) in self.linking.settle(link, || self.host.stopping()) {
            self.links.put(number, link);
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
                self.settle_link(body.link);
                let opened = self.links.open(self.host.charges(), body)?;
                self.say(work, opened.map_err(CodeRefusal::from));
            }
            Body::LinkComplete(body) => {
                if self.start(work.number)?.is_none() {
                    self.answer_without_context(work);
                    return Ok(());
                }
                self.settle_link(body.link);
                self.complete_link(work, body.link)?;
            }
            Body::LinkRead(body) => {
                self.settle_link(body.link);
                let data = self.links.read(body.link, body.offset)?;
                self.answer(work, CUresult::SUCCESS.0, data);
            }
            _ => {}
        }
        Ok(())
    }

    /// Has a link completed, and the message answered, by another thread.
    fn complete_link(&mut self, work: &Work<'_>, number: u32) -> Result<(), SessionError> {
        let (Some(asker), Some(part)) = (self.asker(work), &mut self.part) else { return Ok(()) };
        let context = Arc::clone(&part.context);
        let loader = part.loader()?;
        let mut link = self.links.take(number)?;
        let mut arrival = self.linking.start(number);
        loader.give(Box::new(move || {
            let done = link.complete(room, |open, parts| Ok(image(link::link(&context, open, parts)?)));
            let reply = done.map(|image| {
                let kind = if image.first() == Some(&ELF) { IMAGE_CUBIN } else { IMAGE_PTX };
                LinkReply { image: kind, reserved: 0, bytes: image.len() as u64 }
            });
            arrival.bring(link);
            // The session has the link before the guest has the answer.
            drop(arrival);
            asker.answer("complete a link", reply);
        }));
        Ok(())
    }
}

/// What the driver linked. The guest has a text without the zero that ends it for the driver.
fn image(mut linked: Vec<u8>) -> Vec<u8> {
    if linked.first() != Some(&ELF) {
        while linked.pop_if(|&mut last| last == 0).is_some() {}
    }
    linked
}

/// How the guest is told that the host did not take an input.
fn room(room: &LinkRoom) -> CodeRefusal {
    CodeRefusal { code: CUresult::OUT_OF_MEMORY.0, why: room.to_string() }
}
