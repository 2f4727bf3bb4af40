//! Attributes of pointers, and the kind of memory that an address belongs to.

use std::ffi::{c_int, c_uint, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{MEMORYTYPE_DEVICE, MEMORYTYPE_HOST, pointer_attribute as id};

use crate::Result;
use crate::arg::Out;
use crate::object::memory::{Range, Source};
use crate::object::{address, pinned};

/// Memory that contains an address.
pub enum PointerOwner {
    /// The address is in device memory. `access` has the `CUmemAccess_flags` of the memory that is mapped
    /// there, or `None` if nothing is mapped.
    Device {
        ordinal: i32,
        range: Range,
        access: Option<u32>,
    },
    Host(pinned::PinnedRange),
}

/// Returns the memory that contains an address, or `None` if that is neither device memory nor pinned memory.
pub fn find(address: u64) -> Result<Option<PointerOwner>> {
    if let Some((gpu, range)) = address::find(address)? {
        let access = if range.source == Source::Reservation {
            gpu.memory.mappings().find(address).map(|mapping| mapping.access)
        } else {
            Some(3)
        };
        return Ok(Some(PointerOwner::Device { ordinal: gpu.ordinal(), range, access }));
    }
    Ok(pinned::find(address as usize).map(PointerOwner::Host))
}

/// Returns an attribute's value, in the low [`size`] bytes. An attribute that does not apply is an invalid
/// value.
pub fn value(known: &PointerOwner, attribute: c_uint, address: u64) -> Result<u64> {
    let (ordinal, context, start, bytes, number) = match known {
        PointerOwner::Device { ordinal, range, .. } => {
            (*ordinal, range.context, range.start, range.bytes, range.id)
        }
        PointerOwner::Host(block) => {
            (block.ordinal, block.context, block.start as u64, block.bytes as u64, block.id)
        }
    };
    let device = matches!(known, PointerOwner::Device { .. });
    Ok(match attribute {
        id::CONTEXT => context as u64,
        id::MEMORY_TYPE => u64::from(if device { MEMORYTYPE_DEVICE } else { MEMORYTYPE_HOST }),
        id::DEVICE_POINTER if device => address,
        id::HOST_POINTER if !device => address,
        id::BUFFER_ID => number,
        id::DEVICE_ORDINAL => u64::from(ordinal.cast_unsigned()),
        id::RANGE_START_ADDR => start,
        id::RANGE_SIZE => bytes,
        id::MAPPED => u64::from(!matches!(known, PointerOwner::Device { access: None, .. })),
        id::ACCESS_FLAGS => match known {
            PointerOwner::Device { access, .. } => u64::from(access.unwrap_or(0)),
            PointerOwner::Host(_) => 3,
        },
        id::MEMPOOL_HANDLE => match known {
            PointerOwner::Device { range: Range { source: Source::Pool(pool), .. }, .. } => *pool as u64,
            _ => 0,
        },
        id::SYNC_MEMOPS
        | id::IS_MANAGED
        | id::IS_LEGACY_CUDA_IPC_CAPABLE
        | id::ALLOWED_HANDLE_TYPES
        | id::IS_GPU_DIRECT_RDMA_CAPABLE => 0,
        _ => return Err(CUresult::INVALID_VALUE),
    })
}

/// Returns the size of an attribute's value in bytes, or `None` for an unknown attribute.
fn size(attribute: c_uint) -> Option<usize> {
    match attribute {
        id::CONTEXT
        | id::DEVICE_POINTER
        | id::HOST_POINTER
        | id::BUFFER_ID
        | id::RANGE_START_ADDR
        | id::RANGE_SIZE
        | id::ALLOWED_HANDLE_TYPES
        | id::MEMPOOL_HANDLE => Some(8),
        id::SYNC_MEMOPS
        | id::IS_MANAGED
        | id::IS_LEGACY_CUDA_IPC_CAPABLE
        | id::MAPPED
        | id::IS_GPU_DIRECT_RDMA_CAPABLE => Some(size_of::<bool>()),
        id::MEMORY_TYPE | id::DEVICE_ORDINAL | id::ACCESS_FLAGS => Some(size_of::<c_int>()),
        _ => None,
    }
}

/// Stores an attribute's value at `data`.
pub fn store(data: *mut c_void, attribute: c_uint, value: u64) -> Result {
    let bytes = size(attribute).ok_or(CUresult::INVALID_VALUE)?;
    // SAFETY: the export's caller promised room for the attribute's type at `data`, or null.
    let out = unsafe { Out::new(data.cast::<u8>()) }.check()?;
    for (index, byte) in value.to_le_bytes().into_iter().take(bytes).enumerate() {
        // SAFETY: `index` is below the size of the attribute's type.
        let place = unsafe { out.at(index) };
        place.set(byte)?;
    }
    Ok(())
}
