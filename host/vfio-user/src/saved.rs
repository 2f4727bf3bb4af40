//! What one process hands to the next, so that a VMM keeps its connection.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::{BYTES, Config};
use crate::frame::{HEADER_BYTES, MAX_MESSAGE};
use crate::limits::Limits;
use crate::ram::{MapError, Region, SharedRam};
use crate::record::{ConnectionImage, FileId, RegionImage};
use crate::recorder::Answering;
use crate::regions::Regions;
use crate::stream;

/// A connection between two requests. Nothing of a request that has not been answered is in it: that lies in
/// the socket.
#[derive(Debug)]
pub struct SavedConnection {
    /// The connected socket.
    pub socket: OwnedFd,
    /// What was negotiated, or `None` before that.
    pub limits: Option<Limits>,
    /// The configuration space.
    pub config: [u8; BYTES],
    /// Guest memory, by guest-physical address.
    pub regions: Vec<(u64, Region)>,
    /// A reply for which the VMM left no room.
    pub reply: Option<UnsentReply>,
    /// Id of a request that may have been answered already, because a process died while it answered. It is
    /// the first in the socket, or it has been taken from there.
    pub in_doubt: Option<u16>,
}

/// A reply that is not wholly sent.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UnsentReply {
    /// The whole reply.
    pub bytes: Vec<u8>,
    /// Number of its bytes that were sent.
    pub sent: usize,
    /// BAR whose memory is passed with the first byte.
    pub bar: Option<usize>,
    /// Size of the request in bytes, which is taken from the socket afterwards.
    pub request: usize,
}

/// Reason for which a saved connection is none of this function.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum RestoreError {
    #[error("the saved configuration space is another function's")]
    Config,
    #[error("the saved guest memory of {bytes:#x} bytes at {address:#x} cannot be mapped: {source}")]
    Memory { address: u64, bytes: u64, source: MapError },
    #[error("the saved reply is none")]
    Reply,
    #[error("a part of a reply was sent, and the rest is not known")]
    PartOfReply,
    #[error("the file of the guest's memory at {address:#x} is missing")]
    File { address: u64 },
    #[error("continue the connection")]
    Socket(#[from] std::io::Error),
}

impl SavedConnection {
    /// Makes the connection of a process that has died, from what it has recorded, its socket, and the files
    /// of the guest's memory.
    ///
    /// # Errors
    /// A file is missing, or the process died in the middle of a reply.
    pub fn of_record(
        recorded: &ConnectionImage,
        answering: Answering,
        socket: OwnedFd,
        files: &BTreeMap<FileId, Arc<File>>,
    ) -> Result<Self, RestoreError> {
        let ConnectionImage { limits, config, regions } = recorded;
        let region = |region: &RegionImage| {
            let address = region.address;
            let file = files.get(&region.file).ok_or(RestoreError::File { address })?;
            let (file, writable) = (Arc::clone(file), region.writable);
            Ok((address, Region { file, offset: region.offset, bytes: region.bytes, writable }))
        };
        let regions = regions.iter().map(region).collect::<Result<_, RestoreError>>()?;
        let in_doubt = match answering {
            Answering::Nothing => None,
            Answering::Reply(id) => Some(id),
            Answering::Rest => return Err(RestoreError::PartOfReply),
        };
        Ok(Self { socket, limits: *limits, config: *config, regions, reply: None, in_doubt })
    }

    /// Closes the connection. The VMM sees its end, and no reset.
    pub fn close(self) {
        stream::end(&self.socket);
    }

    /// Maps the guest's memory in `ram`, for a device that needs it before the connection is continued.
    pub fn map(&mut self, ram: &SharedRam) -> Result<(), RestoreError> {
        let mut mapped = ram.change();
        for (address, region) in self.regions.drain(..) {
            let bytes = region.bytes;
            let failed = |source| RestoreError::Memory { address, bytes, source };
            mapped.map(address, region).map_err(failed)?;
        }
        Ok(())
    }

    /// Checks every part, and maps the guest's memory in `ram` unless it is. Returns the configuration space.
    pub(crate) fn check(&mut self, regions: &Regions, ram: &SharedRam) -> Result<Config, RestoreError> {
        let mut config = regions.config();
        if !config.restore(&self.config) {
            return Err(RestoreError::Config);
        }
        if self.reply.as_ref().is_some_and(|reply| !reply.is_possible(regions)) {
            return Err(RestoreError::Reply);
        }
        self.map(ram)?;
        Ok(config)
    }
}

impl UnsentReply {
    /// Returns the id of its request.
    pub(crate) fn id(&self) -> u16 {
        self.bytes.first_chunk().map_or(0, |id| u16::from_ne_bytes(*id))
    }

    fn is_possible(&self, regions: &Regions) -> bool {
        let sizes = HEADER_BYTES..=MAX_MESSAGE;
        sizes.contains(&self.bytes.len())
            && sizes.contains(&self.request)
            && self.sent <= self.bytes.len()
            && self.bar.is_none_or(|bar| regions.memory(bar).is_some())
    }
}
