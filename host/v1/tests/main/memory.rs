//! Tests of calls about device memory, with the values of section 14 of the protocol's description.

use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::payload::GpuInfo;
use zerocopy::FromBytes;

use crate::driver::{guest, pattern, soft, wide};

#[test]
fn memory_is_allocated_written_read_and_freed() {
    let mut guest = guest(soft());
    let address = guest.alloc(4096);
    assert_ne!(address, 0);
    let data = pattern(1, 4096);
    guest.put(address, &data).nothing();
    assert_eq!(guest.get(address, 4096), data);
    assert_eq!(guest.get(address + 16, 1000), data[16..1016]);
    guest.put(address + 100, &[1, 2, 3]).nothing();
    assert_eq!(guest.get(address + 99, 5), [data[99], 1, 2, 3, data[103]]);
    guest.free(address);
    assert_eq!(guest.put(address, &data).failed(), 1, "it is not there any more");
    guest.free(address);
}

#[test]
fn fills_and_copies_on_the_device() {
    let mut guest = guest(soft());
    let (from, to) = (guest.alloc(1000), guest.alloc(1000));
    let args = |destination: u64, value: u32, count: u64| {
        let mut args = wide(&[destination]);
        args.extend([value, 0]);
        args.extend(wide(&[count]));
        args
    };
    guest.call(Op::MemsetD8, &args(from, 0x5a, 1000), &[]).nothing();
    guest.call(Op::MemsetD32, &args(from + 4, 0x0102_0304, 2), &[]).nothing();
    guest.call(Op::MemcpyDtoD, &wide(&[to + 10, from, 16]), &[]).nothing();
    let expected = [0x5a, 0x5a, 0x5a, 0x5a, 4, 3, 2, 1, 4, 3, 2, 1, 0x5a, 0x5a, 0x5a, 0x5a];
    assert_eq!(guest.get(to + 10, 16), expected);
    assert_eq!(guest.call(Op::MemsetD8, &args(from, 0, 1001), &[]).failed(), 1);
    assert_eq!(guest.call(Op::MemsetD32, &args(from, 0, u64::MAX / 2), &[]).failed(), 1);
    assert_eq!(guest.call(Op::MemsetD32, &args(from + 1, 0, 1), &[]).failed(), 1);
    assert_eq!(guest.call(Op::MemcpyDtoD, &wide(&[to, from, 1001]), &[]).failed(), 1);
}

#[test]
fn the_gpu_is_described() {
    let mut guest = guest(soft());
    let done = guest.call(Op::GetGpuInfo, &[], &[]);
    assert_eq!((done.data_len, done.ok().len()), (472, 0));
    let info = GpuInfo::read_from_bytes(&guest.inline(472)).unwrap();
    assert_eq!(&info.name[..15], b"VGPU-STUB test\0");
    assert_eq!((info.cc_major.get(), info.cc_minor.get()), (6, 1));
    assert_eq!((info.total_bytes.get(), info.free_bytes.get()), (256 << 20, 256 << 20));
    assert_eq!((info.warp.get(), info.max_threads_per_block.get()), (32, 1024));
    guest.alloc(1 << 20);
    assert_eq!(guest.call(Op::MemGetInfo, &[], &[]).ok(), [255 << 20, 256 << 20]);
}
