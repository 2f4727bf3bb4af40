//! Exports of the manual's chapter "Event Management". Only creating and recording an event needs its context
//! to be current.

use std::ffi::c_uint;

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::Out;
use vgpu_abi::driver::{CUevent, CUstream, EVENT_DISABLE_TIMING};

use crate::call::ApiCall;
use crate::rule::{CallRefusal, CallResult, Rule};
use crate::stream::Recorded;

/// Least number of queries after a record that answer "not ready", so that a program that assumes completion
/// fails.
const NOT_READY: u32 = 1;

/// Returns whether an event's newest record is complete.
fn is_complete(call: &mut ApiCall, event: CUevent) -> CallResult<bool> {
    let context = call.streams.events.get(event.0)?.context;
    call.fault_of(context)?;
    match &mut call.streams.events.get_mut(event.0)?.recorded {
        Recorded::Never => Ok(true),
        Recorded::Work { at, asked, .. } => {
            *asked += 1;
            Ok(at.is_some() && *asked > NOT_READY)
        }
    }
}

fn elapsed(call: &mut ApiCall, start: CUevent, end: CUevent) -> CallResult<f32> {
    let mut moments = [None; 2];
    for (moment, event) in moments.iter_mut().zip([start, end]) {
        let found = call.streams.events.get(event.0)?;
        call.fault_of(found.context)?;
        if found.flags & EVENT_DISABLE_TIMING != 0 {
            return Err(Rule::NoTiming.into());
        }
        *moment = match found.recorded {
            Recorded::Never => return Err(Rule::NotRecorded.into()),
            Recorded::Work { at, .. } => at,
        };
    }
    let [Some(start), Some(end)] = moments else { return Err(CallRefusal::Expected(CUresult::NOT_READY)) };
    let forth = end.saturating_duration_since(start).as_secs_f32();
    let back = start.saturating_duration_since(end).as_secs_f32();
    Ok((forth - back) * 1000.0)
}

calls! {
    /// Implements `cuEventCreate`.
    pub fn cuEventCreate(event: Out<CUevent>, flags: c_uint) |call| {
        let (context, event) = (call.context()?, event.check()?);
        let made = CUevent(call.streams.create_event(context, flags)?);
        call.out("event", &made);
        Ok(event.set(made)?)
    }

    /// Implements `cuEventDestroy_v2`. It does not cancel an incomplete record.
    pub fn cuEventDestroy_v2(event: CUevent) |call| {
        call.streams.events.remove(event.0)?;
        Ok(())
    }

    /// Implements `cuEventRecord`.
    pub fn cuEventRecord(event: CUevent, stream: CUstream) |call| {
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        call.record_event(lane, event.0)
    }

    /// Implements `cuEventQuery`.
    pub fn cuEventQuery(event: CUevent) |call| {
        if is_complete(call, event)? { Ok(()) } else { Err(CallRefusal::Expected(CUresult::NOT_READY)) }
    }

    /// Implements `cuEventSynchronize`.
    pub fn cuEventSynchronize(event: CUevent) |call| {
        is_complete(call, event)?;
        let context = call.streams.events.get(event.0)?.context;
        call.until(|machine| {
            let pending = |number| machine.work.is_pending(number);
            match machine.streams.events.get(event.0).map(|event| event.recorded) {
                Ok(Recorded::Work { number, .. }) => !pending(number),
                _ => true,
            }
        });
        call.fault_of(context)
    }

    /// Implements `cuEventElapsedTime`.
    pub fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) |call| {
        let milliseconds = milliseconds.check()?;
        Ok(milliseconds.set(elapsed(call, start, end)?)?)
    }
}
