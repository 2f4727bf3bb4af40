//! Tests a host that lacks extensions: the guest attaches, and refuses the calls that need them without a
//! message.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUlinkState, CUmemAllocationProp, CUmemLocation, CUmemoryPool, CUstream};
use vgpu_conformance::calls::*;
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::vector::VectorOp;
use vgpu_wire::facts::exec;
use zerocopy::FromZeros;

use crate::executor::changed;
use crate::host::with_device;

/// The abilities that the host lacks.
const ABSENT: u32 = exec::EPILOGUES | exec::VECTORS | exec::LINKS | exec::HOLDS;
/// Device attributes: virtual memory management, and memory pools.
const ATTRIBUTES: [u16; 2] = [102, 115];

unsafe extern "C" fn do_nothing(_: *mut c_void) {}

#[test]
fn what_a_host_lacks_is_refused_here() {
    let device = || {
        changed("0000:00:05.0", |facts| {
            facts.abilities &= !ABSENT;
            for attribute in ATTRIBUTES {
                facts.attributes[usize::from(attribute)] = 0;
            }
        })
    };
    with_device("absent::what_a_host_lacks_is_refused_here", device, || {
        begin();
        let address = alloc(64);
        let location = CUmemLocation { kind: 1, id: 0 };
        let win32 = ptr::null_mut();
        let prop = CUmemAllocationProp { kind: 1, handle_types: 0, location, win32, flags: [0; 8] };
        let prop = &raw const prop;
        let none: *mut c_void = ptr::null_mut();
        let (product, vector, table) = (MatmulLt::new_zeroed(), VectorOp::new_zeroed(), table());
        let mut sum = 0_f32;
        let calls: [(&str, &mut dyn FnMut() -> Status); 10] = [
            // SAFETY: live structures, and a place for a number or none.
            ("matmul", &mut || unsafe { (table.matmul)(none, &raw const product) }.0),
            // SAFETY: as above.
            ("a sum", &mut || unsafe { (table.vector)(none, &raw const vector, (&raw mut sum).cast()) }.0),
            // SAFETY: as above.
            ("a sum that stays", &mut || unsafe { (table.vector)(none, &raw const vector, none) }.0),
            ("a link", &mut || {
                let mut state = CUlinkState::default();
                cu!(cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), &raw mut state))
            }),
            ("a host function", &mut || cu!(cuLaunchHostFunc(CUstream(0), Some(do_nothing), none))),
            ("a pool's memory", &mut || fails!(u64, cuMemAllocAsync(4096, CUstream(0)))),
            ("the default pool", &mut || fails!(CUmemoryPool, cuDeviceGetDefaultMemPool(0))),
            ("a granularity", &mut || fails!(usize, cuMemGetAllocationGranularity(prop, 0))),
            ("a handle", &mut || fails!(u64, cuMemCreate(2 << 20, prop, 0))),
            ("a range", &mut || fails!(u64, cuMemAddressReserve(2 << 20, 0, 0, 0))),
        ];
        for (what, call) in calls {
            for _ in 0..2 {
                let sent = messages(|| assert_eq!(call(), 801, "{what}"));
                assert_eq!(sent, 0, "{what}");
            }
        }
        for attribute in ATTRIBUTES {
            assert_eq!(get!(i32, cuDeviceGetAttribute(attribute.into(), 0)), 0);
        }
        let mut abilities = u32::MAX;
        // SAFETY: the place is live for the call.
        assert_eq!(unsafe { (table.abilities)(&raw mut abilities) }, CUresult::SUCCESS);
        assert_eq!(abilities & (exec::EPILOGUES | exec::VECTORS), 0);
        // The session continues.
        ok!(cuMemFree_v2(address));
        ok!(cuCtxSynchronize());
    });
}
