//! Calls of functions, and the memory that kernels allocate themselves: what a session gets of both, and how
//! kernels that misuse them end.

use vgpu_device::{DeviceConfig, Limits};
use vgpu_executor_soft::Soft;
use vgpu_host_testing::bench::{Bench, config, gpu};
use vgpu_host_testing::commands::{
    LAUNCH, allocate, function, launch, params, read, read_u32, synchronize, try_load,
};
use vgpu_host_testing::guest::until;
use vgpu_wire::area;
use vgpu_wire::body::launch::Launch;

use crate::limits::{charged, late};

/// `deep` stores the sum of the numbers up to its parameter, by a function that calls itself. `take` stores
/// the address of 64 bytes that it has allocated for each thread and writes its number there; `give` adds
/// these numbers up and frees the memory. `lost` calls address 0, `wrong` frees its own parameter.
const TEXT: &str = "\
.version 8.4
.target sm_61
.address_size 64
.extern .func (.param .b64 result) malloc(.param .b64 bytes);
.extern .func free(.param .b64 address);
.func (.param .b32 result) sum(.param .b32 n)
{
.reg .b32 %r<4>;
.reg .pred %p;
ld.param.u32 %r0, [n];
mov.u32 %r1, 0;
setp.eq.u32 %p, %r0, 0;
@%p bra DONE;
sub.u32 %r1, %r0, 1;
{
.param .b32 a;
.param .b32 b;
st.param.b32 [a], %r1;
call (b), sum, (a);
ld.param.b32 %r1, [b];
}
add.u32 %r1, %r1, %r0;
DONE:
st.param.b32 [result], %r1;
ret;
}
.visible .entry deep(.param .u64 out, .param .u32 n)
{
.reg .b32 %r<2>;
.reg .b64 %d;
ld.param.u64 %d, [out];
ld.param.u32 %r0, [n];
{
.param .b32 a;
.param .b32 b;
st.param.b32 [a], %r0;
call (b), sum, (a);
ld.param.b32 %r1, [b];
}
st.global.u32 [%d], %r1;
ret;
}
.visible .entry take(.param .u64 pieces)
{
.reg .b32 %t;
.reg .b64 %p, %a, %o;
.param .b64 a;
.param .b64 b;
ld.param.u64 %p, [pieces];
mov.u32 %t, %tid.x;
mul.wide.u32 %o, %t, 8;
add.s64 %p, %p, %o;
st.param.b64 [a], 64;
call (b), malloc, (a);
ld.param.b64 %a, [b];
st.global.u64 [%p], %a;
st.u32 [%a+60], %t;
ret;
}
.visible .entry give(.param .u64 pieces, .param .u64 out)
{
.reg .b32 %t, %v;
.reg .b64 %p, %a, %o;
.param .b64 a;
ld.param.u64 %p, [pieces];
mov.u32 %t, %tid.x;
mul.wide.u32 %o, %t, 8;
add.s64 %p, %p, %o;
ld.global.u64 %a, [%p];
ld.u32 %v, [%a+60];
ld.param.u64 %o, [out];
red.global.add.u32 [%o], %v;
st.param.b64 [a], %a;
call free, (a);
ret;
}
.visible .entry lost(.param .u64 address)
{
.reg .b64 %d;
mov.u64 %d, 0;
none: .callprototype _ ();
call %d, none;
ret;
}
.visible .entry wrong(.param .u64 address)
{
.reg .b64 %d;
.param .b64 a;
ld.param.u64 %d, [address];
st.param.b64 [a], %d;
call free, (a);
ret;
}
";

const HEAP: u64 = 8 << 20;

#[test]
fn what_kernels_allocate_lasts_until_it_is_freed_or_the_session_ends() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    try_load(&mut guest, 1, TEXT).expect("the kernels");
    function(&mut guest, 1, "take");
    function(&mut guest, 2, "give");
    let (pieces, sum) = (allocate(&mut guest, 8 * 32), allocate(&mut guest, 4));
    synchronize(&mut guest);
    let before = bench.bus.status().devices[0].allocated;
    let take = Launch { function: 1, ..LAUNCH };
    launch(&mut guest, take, &params(pieces, &[]));
    let first = read(&mut guest, pieces, 8 * 32);
    assert_eq!(bench.bus.status().devices[0].allocated, before + HEAP, "of the session");
    let give = [pieces.to_le_bytes(), sum.to_le_bytes()].concat();
    for round in 1..=3 {
        launch(&mut guest, Launch { function: 2, ..LAUNCH }, &give);
        assert_eq!(read_u32(&mut guest, sum), round * (0..32).sum::<u32>());
        launch(&mut guest, take, &params(pieces, &[]));
    }
    assert_eq!(guest.late(), None);
    // Another session has a heap of its own, in its own memory.
    let mut other = bench.guest(1);
    try_load(&mut other, 1, TEXT).expect("the kernels");
    function(&mut other, 1, "take");
    let others = allocate(&mut other, 8 * 32);
    launch(&mut other, take, &params(others, &[]));
    assert_eq!(read(&mut other, others, 8 * 32).len(), first.len());
    guest.detach();
    other.detach();
    until("all that was charged is returned", || charged(&bench) == 0);
    assert_eq!(bench.bus.status().devices[0].allocated, 0);
}

#[test]
fn a_heap_without_room_is_no_memory_and_work_goes_on() {
    let limits = Limits { host_bytes: 120 << 10, ..Limits::default() };
    let soft = Soft::new(&gpu()).expect("a soft executor");
    let bench = Bench::with(DeviceConfig { limits, ..config(soft) });
    let mut guest = bench.guest(0);
    try_load(&mut guest, 1, TEXT).expect("the kernels");
    function(&mut guest, 1, "take");
    let pieces = allocate(&mut guest, 8 * 32);
    let number = launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(pieces, &[]));
    assert_eq!(late(&mut guest), Some((2, number)));
    assert_eq!(read(&mut guest, pieces, 8), [0; 8]);
}

#[test]
fn a_stack_is_as_deep_as_cudas() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    try_load(&mut guest, 1, TEXT).expect("the kernels");
    function(&mut guest, 1, "deep");
    let out = allocate(&mut guest, 4);
    launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(out, &[50]));
    assert_eq!(read_u32(&mut guest, out), 50 * 51 / 2);
    assert_eq!(guest.late(), None);
}

#[test]
fn what_functions_and_frees_cannot_do_ends_the_session_alone() {
    for (name, parameters, code) in [
        ("deep", params(0, &[100_000]), 714),
        ("lost", params(0, &[]), 718),
        ("wrong", params(0x7000_0000_0000, &[]), 719),
    ] {
        let bench = Bench::soft();
        let (mut guest, mut other) = (bench.guest(0), bench.guest(1));
        for guest in [&mut guest, &mut other] {
            try_load(guest, 1, TEXT).expect("the kernels");
            function(guest, 1, name);
            function(guest, 2, "deep");
        }
        let number = launch(&mut guest, Launch { function: 1, ..LAUNCH }, &parameters);
        synchronize(&mut guest);
        assert_eq!(guest.late(), Some((code, area::ERROR_STICKY, number)), "{name}");
        let out = allocate(&mut other, 4);
        launch(&mut other, Launch { function: 2, ..LAUNCH }, &params(out, &[4]));
        assert_eq!(read_u32(&mut other, out), 10);
    }
}
