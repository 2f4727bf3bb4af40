//! Work of a graph's node: a message in the form in which it would be sent to the host.

use vgpu_abi::driver::graph_node;
use vgpu_wire::body::copy::CopyIn;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::{Header, Kind, Payload, SEGMENT_INLINE, padded};
use zerocopy::{FromBytes, IntoBytes};

/// A node's message, padded, with number 0. It is stored in words so that parameters in it are aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work(Vec<u64>);

impl Work {
    /// Encodes a body and its tail as a message.
    pub fn new<P: Payload>(body: &P, tail: &[&[u8]]) -> Self {
        let least = size_of::<Header>() + size_of::<P>();
        let bytes = padded((least + tail.iter().map(|part| part.len()).sum::<usize>()) as u64) as usize;
        let header = Header { kind: P::KIND as u16, flags: 0, bytes: bytes as u32, number: 0, join: 0 };
        let mut words = vec![0_u64; bytes / 8];
        let mut rest = words.as_mut_bytes();
        for part in [header.as_bytes(), body.as_bytes()].into_iter().chain(tail.iter().copied()) {
            let (place, after) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = after;
        }
        Self(words)
    }

    /// Returns the message as it is sent.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the body and the tail, which may be changed in place.
    pub fn body_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut_bytes()[size_of::<Header>()..]
    }

    /// Returns the body and the tail.
    pub fn body(&self) -> &[u8] {
        &self.bytes()[size_of::<Header>()..]
    }

    /// Returns the message's kind, or `None` for a kind that this version does not know.
    pub fn kind(&self) -> Option<Kind> {
        let (header, _) = Header::read_from_prefix(self.bytes()).ok()?;
        Kind::try_from(header.kind).ok()
    }

    /// Returns the body of a launch, or `None` for work of another kind.
    pub fn launch(&self) -> Option<Launch> {
        let launch = self.kind() == Some(Kind::Launch);
        launch.then(|| Launch::read_from_prefix(self.body()).ok()).flatten().map(|(launch, _)| launch)
    }

    /// Returns whether the work reads or writes pinned memory.
    pub fn touches_host(&self) -> bool {
        match self.kind() {
            Some(Kind::CopyOut) => true,
            Some(Kind::CopyIn) => CopyIn::read_from_prefix(self.body())
                .is_ok_and(|(copy, _)| copy.source.segment != SEGMENT_INLINE),
            _ => false,
        }
    }

    /// Returns the `CUgraphNodeType` of the work.
    pub fn node_type(&self) -> u32 {
        match self.kind() {
            Some(Kind::CopyIn | Kind::CopyOut | Kind::CopyDevice | Kind::CopyRows) => graph_node::MEMCPY,
            Some(Kind::Fill) => graph_node::MEMSET,
            _ => graph_node::KERNEL,
        }
    }
}

#[cfg(test)]
mod tests {
    use vgpu_wire::{Body, Mark, Message, Span};

    use super::*;

    #[test]
    fn a_node_is_a_message_that_decodes() {
        let body =
            CopyIn { stream: 0, reserved: 0, destination: 512, source: Span::inline(5), read: Mark::NONE };
        let work = Work::new(&body, &[b"ab", b"cde"]);
        let message = Message::decode(work.bytes()).unwrap();
        assert_eq!(message.body, Body::CopyIn(body));
        assert_eq!(message.tail, b"abcde");
        assert_eq!(message.header.number, 0);
        assert!(!work.touches_host(), "its data is its own");
    }
}
