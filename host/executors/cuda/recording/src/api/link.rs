//! Exports of the linker, from the manual's chapter "Module Management".

use std::ffi::{c_uint, c_void};

use serde_json::{Value, json};
use vgpu_abi::driver::CUlinkState;
use vgpu_abi::driver::arg::{In, Out, Text};

use super::device::COMPUTE_CAPABILITY;
use crate::call::ApiCall;
use crate::raw::JitValues;
use crate::rule::CallResult;

/// Options whose values are addresses of logs or of lists of names.
const BUFFERS: [c_uint; 5] = [3, 5, 17, 18, 25];

/// Records options with their values. Addresses are recorded as a word.
fn show(call: &mut ApiCall, options: &[c_uint], values: JitValues) -> CallResult {
    let values = values.words(options.len())?;
    let pair = |(&option, &value): (&c_uint, &usize)| -> Value {
        let value = if BUFFERS.contains(&option) { json!("buffer") } else { json!(value as c_uint) };
        json!([option, value])
    };
    let pairs: Vec<Value> = options.iter().zip(&values).map(pair).collect();
    call.line.arg("options", pairs.into());
    Ok(())
}

calls! {
    /// Implements `cuLinkCreate`.
    pub fn cuLinkCreate_v2(
        count: c_uint, options: In<c_uint>, values: JitValues, state: Out<CUlinkState>,
    ) |call| {
        let (context, state) = (call.context()?, state.check()?);
        let options = options.slice(count as usize)?;
        show(call, options, values)?;
        let made = CUlinkState(call.links.create(context, options, values)?);
        call.out("state", &made);
        Ok(state.set(made)?)
    }

    /// Implements `cuLinkAddData`.
    pub fn cuLinkAddData_v2(
        state: CUlinkState, kind: c_uint, data: In<u8>, bytes: usize, name: Text, count: c_uint,
        options: In<c_uint>, values: JitValues,
    ) |call| {
        let options = options.slice(count as usize)?;
        show(call, options, values)?;
        call.links.add(state.0, kind, data.slice(bytes)?, options, values)
    }

    /// Implements `cuLinkComplete`.
    pub fn cuLinkComplete(state: CUlinkState, image: Out<*mut c_void>, bytes: Out<usize>) |call| {
        let (image, bytes) = (image.check()?, bytes.check()?);
        let [major, minor] = COMPUTE_CAPABILITY;
        let made = call.links.complete(state.0, (10 * major + minor) as u8)?;
        image.set(std::ptr::with_exposed_provenance_mut(made.start as usize))?;
        Ok(bytes.set(made.bytes as usize)?)
    }

    /// Implements `cuLinkDestroy`.
    pub fn cuLinkDestroy(state: CUlinkState) |call| {
        call.links.destroy(state.0)
    }
}
