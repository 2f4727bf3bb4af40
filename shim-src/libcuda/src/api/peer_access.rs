//! "Peer Context Memory Access": devices do not reach each other's memory. Copies between them go through the
//! guest.

use std::ffi::{c_int, c_uint};
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUdevice};

use crate::arg::Out;
use crate::object::lifecycle::device;
use crate::object::{context, current};

/// `CUdevice_P2PAttribute`: 1 to 5.
const P2P_ATTRIBUTES: c_uint = 5;

exports! {
    /// `cuDeviceCanAccessPeer`. Devices do not reach each other's memory; copies between them go through the
    /// guest.
    pub fn cuDeviceCanAccessPeer(can: Out<c_int>, ordinal: CUdevice, peer: CUdevice) -> CUresult {
        device(ordinal)?;
        device(peer)?;
        can.set(0)
    }

    /// `cuDeviceGetP2PAttribute`. All are 0, for the same reason.
    pub fn cuDeviceGetP2PAttribute(value: Out<c_int>, id: c_uint, from: CUdevice, to: CUdevice) -> CUresult {
        device(from)?;
        device(to)?;
        if id == 0 || id > P2P_ATTRIBUTES {
            return Err(CUresult::INVALID_VALUE);
        }
        if from == to {
            return Err(CUresult::INVALID_DEVICE);
        }
        value.set(0)
    }

    /// `cuCtxEnablePeerAccess`. Refused: devices do not reach each other's memory.
    pub fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> CUresult {
        let context = current::context()?;
        let peer = context::get(peer)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        Err(if ptr::eq(context, peer) {
            CUresult::INVALID_CONTEXT
        } else if ptr::eq(context.gpu(), peer.gpu()) {
            CUresult::INVALID_DEVICE
        } else {
            CUresult::PEER_ACCESS_UNSUPPORTED
        })
    }

    /// `cuCtxDisablePeerAccess`
    pub fn cuCtxDisablePeerAccess(peer: CUcontext) -> CUresult {
        current::context()?;
        context::get(peer)?;
        Err(CUresult::PEER_ACCESS_NOT_ENABLED)
    }
}
