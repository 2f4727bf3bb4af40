//! Exports of the manual's chapter "Stream Memory Operations", in their second version.

use std::ffi::c_uint;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUstream, wait_value};

use crate::call::ApiCall;
use crate::graph::NodeKind;
use crate::memory::AddressRange;
use crate::raw::DeviceAddress;
use crate::rule::{CallRefusal, CallResult, Rule};
use crate::work::Effect;

/// The flag `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`, the only valid one of a write.
const WRITE_FLAGS: c_uint = 1;

/// Enqueues an operation on a word. `make` gives the effect on a word of host memory. A word of device memory
/// has no content here, so the operation has no effect on it.
fn submit(
    call: &mut ApiCall,
    stream: CUstream,
    address: DeviceAddress,
    bytes: usize,
    make: impl FnOnce(usize) -> Effect,
) -> CallResult {
    if !call.options.memory_operations {
        return Err(Rule::WordUnsupported.into());
    }
    if !(address.0 as usize).is_multiple_of(bytes) {
        return Err(Rule::WordAlignment.into());
    }
    let range = AddressRange::new(address.0, bytes as u64);
    let effect = call.host.of_device(range).map(|host| make(host.start as usize));
    if effect.is_none() {
        call.device_range(range, true).map_err(|_| Rule::WordMemory)?;
    }
    let context = call.context()?;
    let lane = call.streams.lane(context, stream.0)?;
    effect.map_or(Ok(()), |effect| call.submit(lane, NodeKind::Words(vec![effect])))
}

calls! {
    /// Implements `cuStreamWriteValue64_v2`.
    pub fn cuStreamWriteValue64_v2(
        stream: CUstream, address: DeviceAddress, value: u64, flags: c_uint
    ) |call| {
        call.context()?;
        if flags & !WRITE_FLAGS != 0 {
            return Err(Rule::Argument.into());
        }
        submit(call, stream, address, 8, |address| Effect::Write { address, bytes: 8, value })
    }

    /// Implements `cuStreamWaitValue32_v2`.
    pub fn cuStreamWaitValue32_v2(
        stream: CUstream, address: DeviceAddress, value: c_uint, flags: c_uint
    ) |call| {
        call.context()?;
        if flags & wait_value::FLUSH != 0 {
            // The flag needs hardware that the device does not announce.
            return Err(CallRefusal::Expected(CUresult::NOT_SUPPORTED));
        }
        if flags > wait_value::NOR {
            return Err(Rule::Argument.into());
        }
        let value = value.into();
        submit(call, stream, address, 4, |address| Effect::Wait { address, bytes: 4, value, flags })
    }
}
