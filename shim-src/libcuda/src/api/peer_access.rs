//! Peer context memory access: devices cannot access each other's memory. Copies between them go through the
//! guest.

use std::ffi::{c_int, c_uint};
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUdevice};

use crate::arg::Out;
use crate::object::lifecycle::device;
use crate::object::{context, current};

/// The last `CUdevice_P2PAttribute`; ids start at 1.
const P2P_ATTRIBUTES: c_uint = 5;

exports! {
    /// Stores 0, because devices cannot access each other's memory. Copies between them go through the guest.
    pub fn cuDeviceCanAccessPeer(can: Out<c_int>, ordinal: CUdevice, peer: CUdevice) -> CUresult {
        device(ordinal)?;
        device(peer)?;
        can.set(0)
    }

    /// Stores 0 for every attribute, because devices cannot access each other's memory.
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

    /// Always fails, because devices cannot access each other's memory.
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

    /// Always fails, because access between contexts is never enabled.
    pub fn cuCtxDisablePeerAccess(peer: CUcontext) -> CUresult {
        current::context()?;
        context::get(peer)?;
        Err(CUresult::PEER_ACCESS_NOT_ENABLED)
    }
}
