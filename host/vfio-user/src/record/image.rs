//! The image of a device in its record: what a process must know to continue it, encoded in a bounded number of
//! bytes. Every field is checked when it is decoded.

use std::os::fd::AsFd;

use rustix::fs::{OFlags, fcntl_getfl, fstat};
use vgpu_wire::registers::MAX_CHANNELS;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::config::BYTES as CONFIG_BYTES;
use crate::limits::Limits;
use crate::ram::Region;

/// Maximum number of regions of guest memory in an image. QEMU maps about twenty; a VMM with an IOMMU of the
/// guest in between maps any number.
pub const MAX_REGIONS: usize = 512;
/// Maximum number of files of guest memory in an image. Each is a descriptor that the service manager keeps.
pub const MAX_FILES: usize = 36;
/// Size in bytes of the longest image.
pub(super) const MAX_BYTES: usize = size_of::<Head>() + MAX_REGIONS * size_of::<RegionBytes>();

/// Bits of [`RegionBytes::flags`]: the device may write to the region, and the descriptor can be written to.
const WRITABLE: u32 = 1;
const FILE_WRITABLE: u32 = 2;

/// Reason for which bytes are not an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its {field} of {value:#x} cannot be")]
pub struct ImageError {
    /// Name of the field.
    pub field: &'static str,
    /// Value of the field.
    pub value: u64,
}

/// Reason for which a connection cannot be continued although this process serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The guest's memory has more than [`MAX_REGIONS`] regions.
    Regions,
    /// The guest's memory has more than [`MAX_FILES`] files, or more than the service manager keeps.
    Files,
    /// The service manager was not told of a descriptor.
    Store,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Regions => write!(f, "the VM's memory has more than {MAX_REGIONS} regions"),
            Self::Files => f.write_str("the VM's memory has more files than the service manager keeps"),
            Self::Store => f.write_str("the service manager could not be given a descriptor"),
        }
    }
}

/// Identity of an open file. Two descriptors with the same identity are as good as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    /// Device of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Whether the descriptor can be written to.
    pub writable: bool,
}

impl FileId {
    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn of(file: impl AsFd) -> std::io::Result<Self> {
        let about = fstat(&file)?;
        let writable = fcntl_getfl(&file)?.intersects(OFlags::WRONLY | OFlags::RDWR);
        Ok(Self { device: about.st_dev, inode: about.st_ino, writable })
    }
}

/// A region of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionImage {
    /// Guest-physical address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Offset in the file.
    pub offset: u64,
    /// File that holds the bytes.
    pub file: FileId,
    /// Whether the device may write there.
    pub writable: bool,
}

impl RegionImage {
    /// Returns the image of a region.
    ///
    /// # Errors
    /// Its file cannot be looked at.
    pub fn of(address: u64, region: &Region) -> std::io::Result<Self> {
        let Region { file, offset, bytes, writable } = region;
        let file = FileId::of(&**file)?;
        Ok(Self { address, bytes: *bytes, offset: *offset, file, writable: *writable })
    }

    /// Returns whether it has an end, in its file and among addresses.
    fn has_end(&self) -> bool {
        let last = self.bytes.checked_sub(1).and_then(|more| self.address.checked_add(more));
        last.is_some() && self.offset.checked_add(self.bytes).is_some()
    }
}

/// A connection to a VMM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionImage {
    /// What was negotiated, or `None` before that.
    pub limits: Option<Limits>,
    /// The configuration space.
    pub config: [u8; CONFIG_BYTES],
    /// Guest memory in the order of its addresses. Regions do not overlap.
    pub regions: Vec<RegionImage>,
}

/// What a process must know to continue a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Generation of the device.
    pub generation: u32,
    /// Number of its channels, at most 64.
    pub channels: u32,
    /// Size of its window in bytes.
    pub window_bytes: u64,
    /// File of its window.
    pub window: FileId,
    /// Key of the guest's pages.
    pub pages_key: u64,
    /// Number of times that a process has continued the connection after the death of the one before.
    pub crashes: u32,
    /// Connection to the VMM, if there is one that can be continued.
    pub connection: Option<ConnectionImage>,
    /// Reason for which there is a connection that cannot be continued.
    pub loss: Option<Loss>,
}

/// Fixed part of an image.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    generation: u32,
    channels: u32,
    window_bytes: u64,
    window_device: u64,
    window_inode: u64,
    pages_key: u64,
    crashes: u32,
    loss: u32,
    connected: u32,
    negotiated: u32,
    max_msg_fds: u32,
    max_data_xfer_size: u32,
    regions: u32,
    window_writable: u32,
    config: [u8; CONFIG_BYTES],
}

/// A region in an image.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RegionBytes {
    address: u64,
    bytes: u64,
    offset: u64,
    device: u64,
    inode: u64,
    flags: u32,
    reserved: u32,
}

impl Image {
    /// Encodes the image. A connection with too many regions is left out, with the reason in its place.
    pub(super) fn encode(&mut self) -> Vec<u8> {
        if self.connection.as_ref().is_some_and(|connection| connection.regions.len() > MAX_REGIONS) {
            self.connection = None;
            self.loss = Some(Loss::Regions);
        }
        let connection = self.connection.as_ref();
        let limits = connection.and_then(|connection| connection.limits);
        let regions = connection.map_or(&[][..], |connection| &connection.regions);
        let head = Head {
            generation: self.generation,
            channels: self.channels,
            window_bytes: self.window_bytes,
            window_device: self.window.device,
            window_inode: self.window.inode,
            window_writable: self.window.writable.into(),
            pages_key: self.pages_key,
            crashes: self.crashes,
            loss: match self.loss {
                None => 0,
                Some(Loss::Regions) => 1,
                Some(Loss::Files) => 2,
                Some(Loss::Store) => 3,
            },
            connected: connection.is_some().into(),
            negotiated: limits.is_some().into(),
            max_msg_fds: limits.map_or(0, |limits| limits.max_msg_fds),
            max_data_xfer_size: limits.map_or(0, |limits| limits.max_data_xfer_size),
            regions: regions.len() as u32,
            config: connection.map_or([0; CONFIG_BYTES], |connection| connection.config),
        };
        let mut bytes = head.as_bytes().to_vec();
        for region in regions {
            let writable = if region.writable { WRITABLE } else { 0 };
            let file = if region.file.writable { FILE_WRITABLE } else { 0 };
            let region = RegionBytes {
                address: region.address,
                bytes: region.bytes,
                offset: region.offset,
                device: region.file.device,
                inode: region.file.inode,
                flags: writable | file,
                reserved: 0,
            };
            bytes.extend(region.as_bytes());
        }
        bytes
    }

    /// Decodes an image.
    ///
    /// # Errors
    /// A field is none that an image has.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let error = |field, value| ImageError { field, value };
        let size = || error("size", bytes.len() as u64);
        let (head, rest) = Head::read_from_prefix(bytes).map_err(|_| size())?;
        let parts = rest.chunks_exact(size_of::<RegionBytes>());
        if !parts.remainder().is_empty() {
            return Err(size());
        }
        let regions: Vec<RegionBytes> =
            parts.filter_map(|part| RegionBytes::read_from_bytes(part).ok()).collect();
        let flag = |field, value: u32| match value {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(error(field, other.into())),
        };
        if head.regions as usize != regions.len() || regions.len() > MAX_REGIONS {
            return Err(error("number of regions", head.regions.into()));
        }
        if head.channels > MAX_CHANNELS {
            return Err(error("number of channels", head.channels.into()));
        }
        let connected = flag("connection", head.connected)?;
        let negotiated = flag("negotiation", head.negotiated)?;
        let limits = Limits { max_msg_fds: head.max_msg_fds, max_data_xfer_size: head.max_data_xfer_size };
        if !connected && (negotiated || !regions.is_empty()) {
            return Err(error("parts of no connection", regions.len() as u64));
        }
        let connection = if connected {
            let limits = negotiated.then_some(limits);
            Some(ConnectionImage { limits, config: head.config, regions: decode_regions(&regions)? })
        } else {
            None
        };
        let loss = match head.loss {
            0 => None,
            1 => Some(Loss::Regions),
            2 => Some(Loss::Files),
            3 => Some(Loss::Store),
            other => return Err(error("loss", other.into())),
        };
        Ok(Self {
            generation: head.generation,
            channels: head.channels,
            window_bytes: head.window_bytes,
            window: FileId {
                device: head.window_device,
                inode: head.window_inode,
                writable: flag("mode of the window", head.window_writable)?,
            },
            pages_key: head.pages_key,
            crashes: head.crashes,
            connection,
            loss,
        })
    }
}

/// Decodes regions, which are in order and do not overlap.
fn decode_regions(encoded: &[RegionBytes]) -> Result<Vec<RegionImage>, ImageError> {
    let mut regions: Vec<RegionImage> = Vec::with_capacity(encoded.len());
    for region in encoded {
        let error = |field, value| ImageError { field, value };
        if region.flags & !(WRITABLE | FILE_WRITABLE) != 0 || region.reserved != 0 {
            return Err(error("flags of a region", region.flags.into()));
        }
        let decoded = RegionImage {
            address: region.address,
            bytes: region.bytes,
            offset: region.offset,
            file: FileId {
                device: region.device,
                inode: region.inode,
                writable: region.flags & FILE_WRITABLE != 0,
            },
            writable: region.flags & WRITABLE != 0,
        };
        if !decoded.has_end() {
            return Err(error("region without an end", region.address));
        }
        if regions.last().is_some_and(|before| before.address + (before.bytes - 1) >= decoded.address) {
            return Err(error("region that overlaps another", region.address));
        }
        regions.push(decoded);
    }
    Ok(regions)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn files() -> impl Strategy<Value = FileId> {
        (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(device, inode, writable)| FileId {
            device,
            inode,
            writable,
        })
    }

    /// Makes regions from the distance of each to the one before and its size.
    fn regions() -> impl Strategy<Value = Vec<RegionImage>> {
        vec((0u64..1 << 40, 1u64..1 << 40, 0u64..1 << 60, files(), any::<bool>()), 0..40).prop_map(|parts| {
            let mut next = 0;
            let region = |(gap, bytes, offset, file, writable)| {
                let address = next + gap;
                next = address + bytes;
                RegionImage { address, bytes, offset, file, writable }
            };
            parts.into_iter().map(region).collect()
        })
    }

    fn connections() -> impl Strategy<Value = ConnectionImage> {
        let limits = (any::<u32>(), any::<u32>());
        let limits =
            limits.prop_map(|(max_msg_fds, max_data_xfer_size)| Limits { max_msg_fds, max_data_xfer_size });
        let limits = proptest::option::of(limits);
        (limits, vec(any::<u8>(), CONFIG_BYTES), regions()).prop_map(|(limits, config, regions)| {
            ConnectionImage { limits, config: config.try_into().unwrap(), regions }
        })
    }

    /// Returns images as a process writes them.
    pub fn images() -> impl Strategy<Value = Image> {
        let loss =
            proptest::option::of(prop_oneof![Just(Loss::Regions), Just(Loss::Files), Just(Loss::Store)]);
        let numbers = (any::<u32>(), 0..=MAX_CHANNELS, any::<u64>(), any::<u64>(), any::<u32>());
        (numbers, files(), proptest::option::of(connections()), loss).prop_map(
            |((generation, channels, window_bytes, pages_key, crashes), window, connection, loss)| Image {
                generation,
                channels,
                window_bytes,
                window,
                pages_key,
                crashes,
                connection,
                loss,
            },
        )
    }

    fn region(address: u64, bytes: u64) -> RegionImage {
        RegionImage { address, bytes, offset: 0, file: FileId::default(), writable: true }
    }

    fn connected(regions: Vec<RegionImage>) -> Image {
        let connection = ConnectionImage { limits: None, config: [0; CONFIG_BYTES], regions };
        Image { connection: Some(connection), ..Image::default() }
    }

    #[test]
    fn too_many_regions_are_a_loss() {
        let regions = |count: u64| (0..count).map(|at| region(at << 12, 0x1000)).collect();
        let mut most = connected(regions(MAX_REGIONS as u64));
        let bytes = most.encode();
        assert_eq!((bytes.len(), Image::decode(&bytes)), (MAX_BYTES, Ok(most)));
        let read = Image::decode(&connected(regions(MAX_REGIONS as u64 + 1)).encode()).unwrap();
        assert_eq!((read.connection, read.loss), (None, Some(Loss::Regions)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |mut image: Image| Image::decode(&image.encode()).unwrap_err().field;
        let overlapping = connected(vec![region(0, 0x1001), region(0x1000, 1)]);
        assert_eq!(refused(overlapping), "region that overlaps another");
        assert_eq!(refused(connected(vec![region(0x1000, 1), region(0, 1)])), "region that overlaps another");
        assert_eq!(refused(connected(vec![region(u64::MAX, 2)])), "region without an end");
        assert_eq!(refused(connected(vec![region(0, 0)])), "region without an end");
        assert_eq!(refused(Image { channels: 65, ..Image::default() }), "number of channels");
        let good = connected(vec![region(0, 1)]).encode();
        for (at, field) in [
            (44, "loss"),
            (48, "connection"),
            (52, "negotiation"),
            (64, "number of regions"),
            (68, "mode of the window"),
            (size_of::<Head>() + 40, "flags of a region"),
            (size_of::<Head>() + 44, "flags of a region"),
        ] {
            let mut bad = good.clone();
            bad[at] = 0xff;
            assert_eq!(Image::decode(&bad).unwrap_err().field, field, "{at}");
        }
        let mut unconnected = good.clone();
        unconnected[48] = 0;
        assert_eq!(Image::decode(&unconnected).unwrap_err().field, "parts of no connection");
        for length in [0, 1, size_of::<Head>() - 1, good.len() - 1, good.len() - 40] {
            assert_eq!(Image::decode(&good[..length]).unwrap_err().field, "size", "{length}");
        }
    }

    #[test]
    fn a_file_is_told_apart_by_its_inode_and_mode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reads = std::fs::File::open(file.path()).unwrap();
        let [writes, reads] = [file.as_file(), &reads].map(|file| FileId::of(file).unwrap());
        assert!(writes.writable && !reads.writable && writes.inode == reads.inode);
        assert_eq!(FileId::of(file.reopen().unwrap()).unwrap(), writes);
    }

    proptest! {
        #[test]
        fn images_are_decoded_as_they_were(mut image in images()) {
            prop_assert_eq!(Image::decode(&image.encode()), Ok(image));
        }

        #[test]
        fn no_bytes_panic(bytes in vec(any::<u8>(), 0..1200)) {
            let _ = Image::decode(&bytes);
        }
    }
}
