//! Unified addressing: attributes of an address. They need no message, because the driver records its ranges
//! itself.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

#[cfg(not(feature = "cuda13"))]
use vgpu_abi::runtime::PointerAttributes12 as PointerAttributes;
#[cfg(feature = "cuda13")]
use vgpu_abi::runtime::PointerAttributes13 as PointerAttributes;
use vgpu_abi::runtime::{
    CudaError, INVALID_DEVICE_ID, MEMORY_DEVICE, MEMORY_HOST, MEMORY_MANAGED, MEMORY_UNREGISTERED,
};

use crate::address::address;
use crate::process;

/// Ids of `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, `DEVICE_POINTER`, `HOST_POINTER`, `IS_MANAGED` and
/// `DEVICE_ORDINAL`.
const ATTRIBUTES: [c_uint; 5] = [2, 3, 4, 8, 9];

/// Attributes of an address, as the driver stores them.
struct Answer {
    /// `CUmemorytype` of the memory; 0 for memory that the driver does not know.
    memory_type: c_uint,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
    managed: bool,
    device: c_int,
}

/// Returns the `cudaMemoryType` for the driver's attributes.
fn kind(answer: &Answer) -> c_uint {
    match answer.memory_type {
        0 => MEMORY_UNREGISTERED,
        _ if answer.managed => MEMORY_MANAGED,
        1 => MEMORY_HOST,
        _ => MEMORY_DEVICE,
    }
}

fn ask(pointer: *const c_void) -> Result<Answer, CudaError> {
    let (mut memory_type, mut managed, mut device): (c_uint, c_uint, c_int) = (0, 0, INVALID_DEVICE_ID);
    let (mut device_pointer, mut host_pointer) = (ptr::null_mut::<c_void>(), ptr::null_mut::<c_void>());
    let mut attributes = ATTRIBUTES;
    let mut places: [*mut c_void; 5] = [
        (&raw mut memory_type).cast(),
        (&raw mut device_pointer).cast(),
        (&raw mut host_pointer).cast(),
        (&raw mut managed).cast(),
        (&raw mut device).cast(),
    ];
    let count = ATTRIBUTES.len() as c_uint;
    cu!(cuPointerGetAttributes(count, attributes.as_mut_ptr(), places.as_mut_ptr(), address(pointer)))?;
    Ok(Answer { memory_type, device_pointer, host_pointer, managed: managed != 0, device })
}

calls! {
    /// Stores the attributes of an address. Memory that CUDA does not know is reported as unregistered.
    pub fn cudaPointerGetAttributes(place: *mut PointerAttributes, pointer: *const c_void) {
        process::enter()?;
        let answer = ask(pointer)?;
        let unknown = answer.memory_type == 0;
        store!(place, PointerAttributes {
            r#type: kind(&answer),
            device: if unknown { INVALID_DEVICE_ID } else { answer.device },
            devicePointer: answer.device_pointer,
            hostPointer: answer.host_pointer,
            #[cfg(feature = "cuda13")]
            reserved: [0; 8],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let answer = |memory_type, managed| Answer {
            memory_type,
            device_pointer: ptr::null_mut(),
            host_pointer: ptr::null_mut(),
            managed,
            device: 0,
        };
        assert_eq!(kind(&answer(0, false)), MEMORY_UNREGISTERED);
        assert_eq!(kind(&answer(1, false)), MEMORY_HOST);
        assert_eq!(kind(&answer(2, false)), MEMORY_DEVICE);
        assert_eq!(kind(&answer(2, true)), MEMORY_MANAGED);
        assert_eq!(kind(&answer(1, true)), MEMORY_MANAGED);
    }
}
