//! "Stream Memory Operations", of their second version.

use std::ffi::c_uint;

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::In;
use vgpu_abi::driver::{CUstream, StreamMemoryOperation, memory_operation, wait_value};

use crate::call::Call;
use crate::graph::NodeKind;
use crate::memory::Range;
use crate::raw::Address;
use crate::rule::{Answer, Refusal, Rule};
use crate::work::Effect;

/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`
const WRITE_FLAGS: c_uint = 1;
/// The most operations of a batch.
const BATCH: c_uint = 256;

/// The word of an operation: an effect where it is the program's memory, `None` where it is the device's,
/// which holds nothing here.
fn word(
    call: &Call,
    address: Address,
    bytes: usize,
    make: impl FnOnce(usize) -> Effect,
) -> Answer<Option<Effect>> {
    if !call.options.memory_operations {
        return Err(Rule::WordUnsupported.into());
    }
    if !(address.0 as usize).is_multiple_of(bytes) {
        return Err(Rule::WordAlignment.into());
    }
    let range = Range::new(address.0, bytes as u64);
    if let Some(host) = call.host.of_device(range) {
        return Ok(Some(make(host.start as usize)));
    }
    call.device_range(range, true).map_err(|_| Rule::WordMemory)?;
    Ok(None)
}

fn write(call: &Call, address: Address, bytes: usize, value: u64, flags: c_uint) -> Answer<Option<Effect>> {
    if flags & !WRITE_FLAGS != 0 {
        return Err(Rule::Argument.into());
    }
    word(call, address, bytes, |address| Effect::Write { address, bytes, value })
}

fn wait(call: &Call, address: Address, bytes: usize, value: u64, flags: c_uint) -> Answer<Option<Effect>> {
    if flags & wait_value::FLUSH != 0 {
        // Needs hardware that the device does not say it has.
        return Err(Refusal::Expected(CUresult::NOT_SUPPORTED));
    }
    if flags > wait_value::NOR {
        return Err(Rule::Argument.into());
    }
    word(call, address, bytes, |address| Effect::Wait { address, bytes, value, flags })
}

/// The operations of a batch.
pub fn batch(call: &Call, operations: &[StreamMemoryOperation]) -> Answer<Vec<Effect>> {
    let mut effects = Vec::new();
    for one in operations {
        let (address, flags) = (Address(one.address), one.flags);
        let low = one.value & u64::from(u32::MAX);
        effects.extend(match one.operation {
            memory_operation::WRITE_VALUE_32 => write(call, address, 4, low, flags)?,
            memory_operation::WRITE_VALUE_64 => write(call, address, 8, one.value, flags)?,
            memory_operation::WAIT_VALUE_32 => wait(call, address, 4, low, flags)?,
            memory_operation::WAIT_VALUE_64 => wait(call, address, 8, one.value, flags)?,
            memory_operation::BARRIER => None,
            memory_operation::FLUSH_REMOTE_WRITES => return Err(Refusal::Expected(CUresult::NOT_SUPPORTED)),
            _ => return Err(Rule::Argument.into()),
        });
    }
    Ok(effects)
}

/// Gives operations to a stream, one after the other: a batch may wait for what it has written itself.
fn submit(call: &mut Call, stream: CUstream, effects: Vec<Effect>) -> Answer {
    let context = call.context()?;
    let lane = call.streams.lane(context, stream.0)?;
    for effect in effects {
        call.submit(lane, NodeKind::Words(vec![effect]))?;
    }
    Ok(())
}

calls! {
    /// `cuStreamWriteValue32_v2`
    pub fn cuStreamWriteValue32_v2(stream: CUstream, address: Address, value: c_uint, flags: c_uint) |call| {
        call.context()?;
        let effect = write(call, address, 4, value.into(), flags)?;
        submit(call, stream, effect.into_iter().collect())
    }

    /// `cuStreamWriteValue64_v2`
    pub fn cuStreamWriteValue64_v2(stream: CUstream, address: Address, value: u64, flags: c_uint) |call| {
        call.context()?;
        let effect = write(call, address, 8, value, flags)?;
        submit(call, stream, effect.into_iter().collect())
    }

    /// `cuStreamWaitValue32_v2`
    pub fn cuStreamWaitValue32_v2(stream: CUstream, address: Address, value: c_uint, flags: c_uint) |call| {
        call.context()?;
        let effect = wait(call, address, 4, value.into(), flags)?;
        submit(call, stream, effect.into_iter().collect())
    }

    /// `cuStreamWaitValue64_v2`
    pub fn cuStreamWaitValue64_v2(stream: CUstream, address: Address, value: u64, flags: c_uint) |call| {
        call.context()?;
        let effect = wait(call, address, 8, value, flags)?;
        submit(call, stream, effect.into_iter().collect())
    }

    /// `cuStreamBatchMemOp_v2`
    pub fn cuStreamBatchMemOp_v2(
        stream: CUstream, count: c_uint, operations: In<StreamMemoryOperation>, flags: c_uint,
    ) |call| {
        call.context()?;
        if flags != 0 || count > BATCH {
            return Err(Rule::Argument.into());
        }
        let effects = batch(call, operations.slice(count as usize)?)?;
        submit(call, stream, effects)
    }
}
