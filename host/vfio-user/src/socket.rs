//! A function behind a vfio-user socket, for a VMM that has `vfio-user-pci`, such as QEMU from 10.1 on. The
//! VMM connects to the socket, one VMM at a time.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_MMAP,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info, vfio_region_sparse_mmap_area,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion, SparseArea};
use vgpu_device::{ListenError, listen_for};

use crate::config::{self, Config};
use crate::function::{Bar, Function};
use crate::ram::{Region, SharedRam};

/// Reason for which a socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum SocketError {
    #[error("open the vfio-user socket")]
    Listen(#[from] ListenError),
    #[error("serve the vfio-user socket {path}: {source}")]
    Serve { path: PathBuf, source: vfio_user::Error },
}

/// The socket of a function. Its file is removed when this is dropped.
pub struct FunctionSocket {
    path: PathBuf,
    server: Server,
    connection: Connection,
    /// Memory of the BARs. The server uses the numbers of these descriptors.
    _memory: Vec<OwnedFd>,
}

impl std::fmt::Debug for FunctionSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionSocket").field("path", &self.path).finish_non_exhaustive()
    }
}

impl FunctionSocket {
    /// Listens at `path`, for VMMs of this user and of `group`. A socket that a dead process left there is
    /// removed. `ram` will hold the guest's memory.
    pub fn bind(
        path: &Path,
        group: Option<u32>,
        function: Arc<dyn Function>,
        ram: SharedRam,
    ) -> Result<Self, SocketError> {
        let bars = function.bars();
        let mut memory = Vec::new();
        let regions = (0..VFIO_PCI_NUM_REGIONS).map(|index| {
            let bar = bars.get(index as usize).copied().flatten();
            let file = bar.and_then(|_| function.memory(index as usize));
            let region = region(index, bar, file.as_ref());
            memory.extend(file);
            region
        });
        let regions = regions.collect();
        // A VMM asks about each kind of interrupt, and the function has none.
        let irqs = (0..VFIO_PCI_NUM_IRQS).map(|index| IrqInfo { index, flags: 0, count: 0 }).collect();
        let server = Server::from_owned_fd(listen_for(path, group)?, true, irqs, regions);
        let config = Config::new(&function.identity(), &bars, function.pages_key());
        let connection = Connection { function, bars, config, ram };
        Ok(Self { path: path.to_owned(), server, connection, _memory: memory })
    }

    /// Serves VMMs, one after the other, and returns only with an error.
    ///
    /// # Errors
    /// The socket cannot accept another VMM.
    ///
    /// # Panics
    /// The crate `vfio_user` panics if a VMM breaks the protocol in one of a few ways.
    pub fn serve(&mut self) -> Result<Infallible, SocketError> {
        loop {
            let ended = self.server.run(&mut self.connection);
            tracing::info!(socket = %self.path.display(), "the machine is gone");
            self.connection.power_off();
            match ended {
                // The end of the machine, whatever its reason, is not an error of this program.
                Ok(()) => {}
                Err(source @ vfio_user::Error::SocketAccept(_)) => {
                    return Err(SocketError::Serve { path: self.path.clone(), source });
                }
                Err(error) => tracing::warn!(socket = %self.path.display(), "the connection broke: {error}"),
            }
        }
    }
}

impl Drop for FunctionSocket {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Describes a region to the VMM.
fn region(index: u32, bar: Option<Bar>, memory: Option<&OwnedFd>) -> ServerRegion {
    let (mut flags, mut size) = (0, 0);
    let mut sparse_areas = Vec::new();
    if index == VFIO_PCI_CONFIG_REGION_INDEX {
        (flags, size) = (VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE, config::BYTES as u64);
    } else if let Some(bar) = bar {
        (flags, size) = (VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE, bar.bytes);
        if memory.is_some() {
            flags |= VFIO_REGION_INFO_FLAG_MMAP;
            // The area is the whole BAR, because the crate passes the descriptor only with a list of areas.
            let area = vfio_region_sparse_mmap_area { offset: 0, size };
            sparse_areas.push(SparseArea { area });
        }
    }
    let region_info = vfio_region_info {
        argsz: size_of::<vfio_region_info>() as u32,
        flags,
        index,
        cap_offset: 0,
        size,
        offset: 0,
    };
    ServerRegion { region_info, sparse_areas, mmap_fd: memory.map(AsRawFd::as_raw_fd) }
}

/// Connection to a VMM, which answers its accesses.
struct Connection {
    function: Arc<dyn Function>,
    bars: [Option<Bar>; 6],
    config: Config,
    /// Memory of the guest. It holds the window of version 1, and the pages that version 2 is granted.
    ram: SharedRam,
}

impl Connection {
    fn power_off(&mut self) {
        self.function.reset();
        self.config.reset();
        self.ram.change().clear();
    }

    /// Returns the BAR that contains an access.
    fn bar(&self, region: u32, offset: u64, bytes: usize) -> Option<usize> {
        let index = region as usize;
        let bar = self.bars.get(index).copied().flatten()?;
        (offset.checked_add(bytes as u64)? <= bar.bytes).then_some(index)
    }
}

impl ServerBackend for Connection {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            self.config.read(offset, data);
        } else if let Some(bar) = self.bar(region, offset, data.len()) {
            self.function.read(bar, offset, data);
        } else {
            // A bus returns all ones if no device answers.
            data.fill(0xff);
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            self.config.write(offset, data);
        } else if let Some(bar) = self.bar(region, offset, data.len()) {
            self.function.write(bar, offset, data);
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        // A region without a file is not guest memory, but a BAR of this function or a ROM.
        let Some(file) = fd else { return Ok(()) };
        let writable = flags.contains(DmaMapFlags::WRITE);
        let region = Region { file: Arc::new(file), offset, bytes: size, writable };
        tracing::debug!("guest memory: {size:#x} bytes at {address:#x}");
        self.ram.change().map(address, region).map_err(io::Error::other)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.ram.change().clear();
        } else {
            self.ram.change().unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        tracing::debug!("reset");
        self.function.reset();
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, _: u32, _: u32, count: u32, _: Vec<File>) -> io::Result<()> {
        // Disabling an interrupt that does not exist is no error.
        if count == 0 { Ok(()) } else { Err(io::Error::other(format!("there is no interrupt {index}"))) }
    }
}
