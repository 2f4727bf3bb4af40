//! Messages of the driver's linker. Inputs are kept until the guest completes the link, so that the driver's
//! state lives no longer than that takes. The loader's thread links; a message that names the link waits for
//! it.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{CodeLinkRefusal, CodeRefusal, SessionError, Violation, Work};
use vgpu_wire::Body;
use vgpu_wire::body::link::{LinkData, LinkReply};
use vgpu_wire::body::module::{IMAGE_CUBIN, IMAGE_PTX};

use super::CudaSession;
use crate::driver::link;

/// First byte of a cubin, which is an ELF file. No text starts with it.
const ELF: u8 = 0x7f;

impl CudaSession {
    /// Handles inputs and the end of a link, which are not answered.
    pub(super) fn link_input(&mut self, work: &Work<'_>) -> Result<(), Violation> {
        match &work.message.body {
            Body::LinkInput(body) => {
                self.collect_linked(body.link);
                self.links.input(body, work.message.tail)
            }
            Body::LinkData(body) => {
                self.collect_linked(body.link);
                self.link_data(work, body)
            }
            Body::LinkClose(body) => {
                self.collect_linked(body.link);
                self.links.close(body.link)
            }
            _ => Ok(()),
        }
    }

    /// Takes over links that were completed. Waits for `link` if it is being completed.
    fn collect_linked(&mut self, link: u32) {
        for (number, link) in self.linking.collect(link, || self.host.stopping()) {
            self.links.put(number, link);
        }
    }

    /// Adds a piece of an input.
    fn link_data(&mut self, work: &Work<'_>, body: &LinkData) -> Result<(), Violation> {
        self.host.take_data(&body.data, work.message.tail, |bytes, copy| {
            self.links.data(body.link, body.offset, bytes, copy)
        })
    }

    /// Answers messages about links.
    pub(super) fn answer_link(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::LinkOpen(body) => {
                self.collect_linked(body.link);
                let opened = self.links.open(self.host.charges(), body)?;
                self.reply_code(work, opened.map_err(CodeRefusal::from));
            }
            Body::LinkComplete(body) => {
                if self.start(work.number)?.is_none() {
                    self.answer_without_context(work);
                    return Ok(());
                }
                self.collect_linked(body.link);
                self.complete_link(work, body.link)?;
            }
            Body::LinkRead(body) => {
                self.collect_linked(body.link);
                let data = self.links.read(body.link, body.offset)?;
                self.answer(work, CUresult::SUCCESS.0, data);
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes the loader complete a link and answer the message.
    fn complete_link(&mut self, work: &Work<'_>, number: u32) -> Result<(), SessionError> {
        let (Some(responder), Some(gpu)) = (self.responder(work), &mut self.gpu) else { return Ok(()) };
        let context = Arc::clone(&gpu.context);
        let loader = gpu.loader()?;
        let mut link = self.links.remove(number)?;
        let mut arrival = self.linking.start(number);
        loader.enqueue_task(Box::new(move || {
            let done = link.complete(room, |open, parts| Ok(image(link::link(&context, open, parts)?)));
            let reply = done.map(|image| {
                let kind = if image.first() == Some(&ELF) { IMAGE_CUBIN } else { IMAGE_PTX };
                LinkReply { image: kind, reserved: 0, bytes: image.len() as u64 }
            });
            arrival.bring(link);
            // The session has the link before the guest has the answer.
            drop(arrival);
            responder.answer("complete a link", reply);
        }));
        Ok(())
    }
}

/// Converts a linked image for the guest, whose texts do not end with a zero.
fn image(mut linked: Vec<u8>) -> Vec<u8> {
    if linked.first() != Some(&ELF) {
        while linked.pop_if(|&mut last| last == 0).is_some() {}
    }
    linked
}

/// Returns the refusal for an input that the host could not store.
fn room(room: &CodeLinkRefusal) -> CodeRefusal {
    CodeRefusal { code: CUresult::OUT_OF_MEMORY.0, why: room.to_string() }
}
