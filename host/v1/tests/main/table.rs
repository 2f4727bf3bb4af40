//! Tests of the table of calls, row by row: executed, ignored, or refused with 801, and the answers of the
//! simple rows.

use vgpu_wire::v1::call::{Op, Treatment};

use crate::driver::{Guest, guest, null, soft, wide};

/// Calls that succeed with an empty payload, with the number of results.
const PLAIN: &[(Op, usize)] = &[
    (Op::Init, 1),
    (Op::DriverGetVersion, 1),
    (Op::DeviceGetCount, 1),
    (Op::DeviceGet, 1),
    (Op::CtxCreate, 1),
    (Op::CtxSetCurrent, 0),
    (Op::CtxGetCurrent, 1),
    (Op::CtxSynchronize, 0),
    (Op::CtxGetDevice, 1),
    (Op::CtxGetApiVersion, 1),
    (Op::PrimaryCtxRetain, 1),
    (Op::PrimaryCtxReset, 0),
    (Op::PrimaryCtxGetState, 2),
    (Op::MemFree, 0),
    (Op::MemcpyHtoD, 0),
    (Op::MemcpyHtoDAsync, 0),
    (Op::MemcpyDtoH, 0),
    (Op::MemcpyDtoD, 0),
    (Op::MemsetD8, 0),
    (Op::MemsetD32, 0),
    (Op::MemGetInfo, 2),
    (Op::ModuleUnload, 0),
    (Op::StreamCreate, 1),
    (Op::StreamCreateWithFlags, 1),
    (Op::StreamCreateWithPriority, 1),
    (Op::StreamSynchronize, 0),
    (Op::StreamQuery, 0),
    (Op::EventCreate, 1),
    (Op::EventCreateWithFlags, 1),
    (Op::CublasCreate, 2),
    (Op::ProcessCleanup, 0),
];

/// Calls that fail with an empty payload, with the `CUresult` of each.
const WRONG: &[(Op, u32)] = &[
    (Op::MemAlloc, 1),
    (Op::ModuleLoadData, 200),
    (Op::ModuleLoadDataEx, 200),
    (Op::ModuleLoadFatBinary, 200),
    (Op::ModuleGetFunction, 1),
    (Op::ModuleGetGlobal, 1),
    (Op::LibraryLoadData, 200),
    (Op::LibraryUnload, 400),
    (Op::LibraryGetModule, 400),
    (Op::FuncGetAttribute, 400),
    (Op::FuncSetCacheConfig, 400),
    (Op::FuncGetParamInfo, 1),
    (Op::LaunchKernel, 1),
    (Op::StreamDestroy, 400),
    (Op::StreamWaitEvent, 400),
    (Op::EventDestroy, 400),
    (Op::EventRecord, 400),
    (Op::EventSynchronize, 400),
    (Op::EventQuery, 400),
    (Op::EventElapsedTime, 400),
];

/// Calls that always succeed, with cuBLAS's status for an empty payload.
const CUBLAS: &[(Op, u64)] = &[
    (Op::CublasDestroy, 1),
    (Op::CublasSetStream, 1),
    (Op::CublasGetStream, 1),
    (Op::CublasSgemm, 7),
    (Op::CublasGemmEx, 7),
    (Op::CublasGemmStridedBatchedEx, 7),
    (Op::CublasGemmBatchedEx, 7),
];

fn rows(mut guest: Guest) {
    for &op in Op::ALL {
        let done = guest.call(op, &[0; 16], &[]);
        let plain = PLAIN.iter().find(|row| row.0 == op);
        let wrong = WRONG.iter().find(|row| row.0 == op);
        let cublas = CUBLAS.iter().find(|row| row.0 == op);
        match (op.treatment(), plain, wrong, cublas) {
            (Treatment::Refused, None, None, None) => assert_eq!(done.failed(), 801, "{}", op.name()),
            (Treatment::Ignored, None, None, None) => done.nothing(),
            (Treatment::Done, Some(&(_, results)), None, None) => {
                assert_eq!(done.data_len, 0, "{}", op.name());
                assert_eq!(done.ok().len(), results, "{}", op.name());
            }
            (Treatment::Done, None, Some(&(_, code)), None) => {
                assert_eq!(done.failed(), code, "{}", op.name());
            }
            (Treatment::Done, None, None, Some(&(_, status))) => {
                assert_eq!(done.ok(), [status], "{}", op.name());
            }
            (Treatment::Done, None, None, None) if op == Op::GetGpuInfo => {
                assert_eq!(done.data_len, 472);
            }
            _ => panic!("{} is in no table of this test, or in two", op.name()),
        }
    }
}

#[test]
fn each_call_is_treated_as_its_row_says() {
    rows(guest(soft()));
}

/// The treatment of calls does not depend on the executor behind the mediator.
#[test]
fn each_call_is_treated_so_over_the_null_executor_too() {
    rows(guest(null()));
}

#[test]
fn calls_that_are_in_no_row_are_refused() {
    let mut guest = guest(null());
    let known = |id: u32| Op::try_from(id).is_ok();
    for id in (0..=0x1ff).chain([0x0001_0030, u32::MAX]).filter(|id| !known(*id)) {
        assert_eq!(guest.raw(id, &[], &[]).failed(), 801, "{id:#x}");
    }
}

#[test]
fn contexts_are_one() {
    let mut guest = guest(soft());
    assert_eq!(guest.call(Op::Init, &[0], &[]).one(), 1);
    assert_eq!(guest.call(Op::DriverGetVersion, &[], &[]).one(), 13_000);
    assert_eq!(guest.call(Op::DeviceGetCount, &[], &[]).one(), 1);
    assert_eq!(guest.call(Op::DeviceGet, &[], &[]).one(), 0);
    assert_eq!(guest.call(Op::CtxGetCurrent, &[], &[]).one(), 0, "not before it is valid");
    assert_eq!(guest.call(Op::PrimaryCtxGetState, &[0, 0], &[]).ok(), [0, 0]);
    let context = guest.call(Op::PrimaryCtxRetain, &[0, 0], &[]).one();
    assert!(context > u64::from(u32::MAX), "a handle of more than 32 bits");
    assert_eq!(guest.call(Op::CtxCreate, &[0, 0, 0, 0], &[]).one(), context);
    assert_eq!(guest.call(Op::CtxGetCurrent, &[], &[]).one(), context);
    assert_eq!(guest.call(Op::PrimaryCtxGetState, &[0, 0], &[]).ok(), [0, 1]);
    guest.call(Op::CtxSetCurrent, &wide(&[12345]), &[]).nothing();
    assert_eq!(guest.call(Op::CtxGetApiVersion, &[], &[]).one(), 3020);
    assert_eq!(guest.call(Op::CtxGetDevice, &[], &[]).one(), 0);
    let other = guest.process(9).call(Op::PrimaryCtxRetain, &[0, 0], &[]).one();
    assert_eq!(other, context);
    let address = guest.alloc(4096);
    let stream = guest.call(Op::StreamCreate, &[0], &[]).one();
    guest.call(Op::PrimaryCtxReset, &[0, 0], &[]).nothing();
    assert_eq!(guest.put(address, &[1]).failed(), 1, "memory is freed");
    guest.call(Op::StreamDestroy, &wide(&[stream]), &[]).nothing();
}
