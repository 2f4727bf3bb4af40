//! Links of a session: messages that link several PTX texts to one image.

use sha2::{Digest as _, Sha256};
use vgpu_device::{CodeLinkInput, CodeLinkRefusal, CodeLinks, CodeRefusal, Violation};
use vgpu_ptx::{Effort, Input, LinkError, Spent};
use vgpu_wire::body::link::{INPUT_PTX, LinkOpen, LinkReply};
use vgpu_wire::body::module::IMAGE_PTX;

use crate::modules::refused;
use crate::runner::Runner;
use crate::status;

/// Opens a link (`cuLinkCreate`) with the options of the message. The inner error is the program's, the outer
/// one the guest's violation.
pub(crate) fn open(
    links: &mut CodeLinks,
    runner: &Runner,
    body: &LinkOpen,
) -> Result<Result<(), CodeRefusal>, Violation> {
    let opened = links.open(runner.host.charges(), body)?;
    Ok(opened.map_err(|over| refused(runner, &over)))
}

/// Links the inputs that were sent (`cuLinkComplete`). The reply has the size of the linked text in bytes.
pub(crate) fn complete(
    links: &mut CodeLinks,
    runner: &Runner,
    number: u32,
) -> Result<Result<LinkReply, CodeRefusal>, Violation> {
    let room = |room: &CodeLinkRefusal| match room {
        CodeLinkRefusal::Over(over) => refused(runner, over),
        CodeLinkRefusal::TooLong => CodeRefusal::new(status::OUT_OF_MEMORY, room),
    };
    let mut link = links.remove(number)?;
    let done = link.complete(room, |_options, parts| linked(runner, &parts));
    let reply = done.map(|text| LinkReply { image: IMAGE_PTX, reserved: 0, bytes: text.len() as u64 });
    links.put(number, link);
    Ok(reply)
}

/// Links the inputs to one PTX text. The image is cached as if a program had sent it, so that the guest need
/// not send it to load its module.
fn linked(runner: &Runner, parts: &[CodeLinkInput]) -> Result<Vec<u8>, CodeRefusal> {
    if let Some(part) = parts.iter().find(|part| part.kind != INPUT_PTX) {
        let why = format!("{}: this device links PTX text, not compiled code", part.name);
        return Err(CodeRefusal::new(status::NO_BINARY_FOR_GPU, &why));
    }
    let inputs: Vec<Input<'_>> =
        parts.iter().map(|part| Input { name: &part.name, text: &part.data }).collect();
    let interrupt = runner.limited();
    let linked = vgpu_ptx::link(&inputs, &Effort::unlimited(interrupt.clone()));
    let text = linked.map_err(|error| CodeRefusal::new(code(&error), &error))?;
    let mut copy = Vec::new();
    if copy.try_reserve_exact(text.len()).is_err() {
        return Err(CodeRefusal::new(status::OUT_OF_MEMORY, "the host has no memory for the linked text"));
    }
    copy.extend_from_slice(&text);
    let brought = runner.device.images.bring(Sha256::digest(&text).into(), copy, &interrupt);
    brought.map_err(|error| CodeRefusal::new(error.code(), &error))?;
    Ok(text)
}

/// Returns the `CUresult` that CUDA's linker returns for an error.
const fn code(error: &LinkError) -> u32 {
    match error {
        LinkError::Ptx { error: vgpu_ptx::PtxError::Spent(Spent::Halted(_)), .. } => status::LAUNCH_TIMEOUT,
        LinkError::Ptx { .. } => status::INVALID_PTX,
        LinkError::Empty => status::INVALID_VALUE,
        LinkError::Twice { .. } | LinkError::Undefined { .. } => status::UNKNOWN,
        LinkError::TooLong(_) => status::OUT_OF_MEMORY,
    }
}
