//! Tests of calls about code: images in each form and in pieces, kernels, variables, launches in both modes.

use vgpu_image::fatbin::build::fatbin;
use vgpu_image::fatbin::{Kind, Packing};
use vgpu_image::ptx::Specific;
use vgpu_wire::v1::call::{CHUNK_FIRST, CHUNK_LAST, CHUNK_MIDDLE, CHUNK_SINGLE, Op};
use vgpu_wire::v1::payload::{LAUNCH_LEGACY, LAUNCH_RAW, Launch};
use zerocopy::{FromZeros, IntoBytes};

use vgpu_executor_soft::Soft;

use crate::driver::{Guest, gpu, guest, soft, wide};

/// PTX of a kernel that multiplies `n` words at `p` by `f`, from the variable `start` on.
pub const PTX: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .global .align 4 .u32 start = 3;
.visible .entry scale(.param .u64 p, .param .u32 n, .param .u32 f)
{
    .reg .pred %q<2>;
    .reg .b32 %r<6>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [f];
    mov.u32 %r3, %tid.x;
    setp.ge.u32 %q1, %r3, %r1;
    @%q1 bra done;
    cvta.to.global.u64 %d2, %d1;
    mul.wide.u32 %d3, %r3, 4;
    add.s64 %d4, %d2, %d3;
    ld.global.u32 %r4, [%d4];
    mul.lo.u32 %r5, %r4, %r2;
    st.global.u32 [%d4], %r5;
done:
    ret;
}
";

fn text(ptx: &str) -> Vec<u8> {
    [ptx.as_bytes(), &[0]].concat()
}

fn name(name: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0padding"].concat()
}

impl Guest {
    pub fn load(&mut self, image: &[u8]) -> u64 {
        self.call(Op::ModuleLoadData, &[], image).one()
    }

    pub fn function(&mut self, module: u64, function: &str) -> u64 {
        self.call(Op::ModuleGetFunction, &wide(&[module]), &name(function)).one()
    }

    fn works(&mut self, module: u64) {
        let function = self.function(module, "scale");
        let address = self.alloc(64);
        let words: Vec<u32> = (1..=16).collect();
        self.put(address, words.as_bytes()).nothing();
        let params = [address.as_bytes(), 5_u32.as_bytes(), 7_u32.as_bytes()].concat();
        self.call(Op::LaunchKernel, &[], &launch(function, LAUNCH_RAW, 3, &params)).nothing();
        let expected: Vec<u32> = words.iter().map(|&word| if word <= 5 { 7 * word } else { word }).collect();
        assert_eq!(self.get(address, 64), expected.as_bytes());
        self.free(address);
    }
}

/// Returns the payload of a launch of 32 threads.
pub fn launch(function: u64, mode: u32, params: u32, rest: &[u8]) -> Vec<u8> {
    let mut launch = Launch::new_zeroed();
    launch.function = function.into();
    launch.grid = [1.into(); 3];
    launch.block = [32.into(), 1.into(), 1.into()];
    launch.params = params.into();
    launch.param_bytes = (rest.len() as u32).into();
    launch.mode = mode.into();
    [launch.as_bytes(), rest].concat()
}

#[test]
fn images_are_taken_in_every_form() {
    let mut guest = guest(soft());
    let module = guest.load(&text(PTX));
    guest.works(module);
    let module = guest.call(Op::ModuleLoadDataEx, &[0; 16], PTX.as_bytes()).one();
    guest.works(module);
    let ptx = |sm, packing| (Kind::Ptx, sm, Specific::No, packing, PTX.as_bytes().to_vec());
    let wrong = |sm| (Kind::Ptx, sm, Specific::No, Packing::Plain, b".version 7.0\n.target sm_50\n".to_vec());
    let cubin = (Kind::Cubin, 61, Specific::No, Packing::Plain, b"\x7fELF".to_vec());
    for packing in [Packing::Plain, Packing::Lz4, Packing::Zstd] {
        // The device is sm_61 and accepts PTX. Neither the newest nor the oldest of these parts is right for
        // it.
        let image = fatbin(&[wrong(50), ptx(60, packing), wrong(70), cubin.clone()]);
        let module = guest.call(Op::ModuleLoadFatBinary, &[], &image).one();
        guest.works(module);
    }
}

#[test]
fn images_that_are_none_are_refused_as_cuda_does() {
    let mut guest = guest(soft());
    let mut code = |image: &[u8]| guest.call(Op::ModuleLoadData, &[], image).failed();
    assert_eq!(code(b"no image"), 200);
    assert_eq!(code(b""), 200);
    assert_eq!(code(&text(&PTX.replace("sm_50", "sm_90"))), 209);
    assert_eq!(code(&text(&PTX.replace("7.0", "99.0"))), 222);
    assert_eq!(code(&text(&format!("{PTX} what is this"))), 218);
    assert_eq!(code(&fatbin(&[])), 209);
    assert_eq!(code(&[&fatbin(&[])[..8], &[0xff; 8]].concat()), 200);
    assert_eq!(code(b"\x7fELF\x02\x01\x01"), 200);
}

#[test]
fn images_come_in_pieces() {
    let mut guest = guest(soft());
    let image = text(&format!("{PTX}\n// {:2000}", "long"));
    assert!(image.len() > 2048, "three pieces");
    let piece = |chunk: u32| {
        let mut args = [0; 16];
        args[14] = chunk;
        args
    };
    for op in [Op::ModuleLoadData, Op::ModuleLoadDataEx, Op::ModuleLoadFatBinary, Op::LibraryLoadData] {
        guest.call(op, &piece(CHUNK_FIRST), &image[..1024]).nothing();
        guest.call(op, &piece(CHUNK_MIDDLE), &image[1024..2048]).nothing();
        let handle = guest.call(op, &piece(CHUNK_LAST), &image[2048..]).one();
        let module = match op {
            Op::LibraryLoadData => guest.call(Op::LibraryGetModule, &wide(&[handle]), &[]).one(),
            _ => handle,
        };
        guest.works(module);
    }
    let module = guest.call(Op::ModuleLoadData, &piece(CHUNK_SINGLE), &image[..400]);
    assert_eq!(module.failed(), 218, "a first piece alone is no whole text");
    // A new first piece discards the pieces so far.
    guest.call(Op::ModuleLoadData, &piece(CHUNK_FIRST), b"garbage").nothing();
    guest.call(Op::ModuleLoadData, &piece(CHUNK_FIRST), &image[..1024]).nothing();
    let module = guest.call(Op::ModuleLoadData, &piece(CHUNK_LAST), &image[1024..]).one();
    guest.works(module);
    // Pieces that follow no first piece are dropped.
    guest.call(Op::ModuleLoadData, &piece(CHUNK_MIDDLE), &image[..1024]).nothing();
    assert_eq!(guest.call(Op::ModuleLoadData, &piece(CHUNK_LAST), &image[1024..]).failed(), 200);
    assert_eq!(guest.call(Op::LibraryLoadData, &piece(CHUNK_MIDDLE), &image[..1024]).failed(), 1);
    assert_eq!(guest.call(Op::LibraryLoadData, &piece(CHUNK_LAST), &image[..1024]).failed(), 1);
    // With fewer than 15 arguments, the image is whole, whatever the register holds.
    let module = guest.call(Op::ModuleLoadData, &piece(CHUNK_FIRST)[..14], &image).one();
    guest.works(module);
    // The pieces of two processes are separate images.
    let mut other = guest.process(99);
    guest.call(Op::ModuleLoadData, &piece(CHUNK_FIRST), &image[..1024]).nothing();
    other.call(Op::ModuleLoadData, &piece(CHUNK_FIRST), b"x").nothing();
    let module = guest.call(Op::ModuleLoadData, &piece(CHUNK_LAST), &image[1024..]).one();
    guest.works(module);
}

/// The pieces of one image have at most 1 GiB together. The piece that exceeds it is answered with out of
/// memory, the pieces before it are freed, and the process can continue.
#[test]
fn the_pieces_of_an_image_have_a_limit() {
    const PIECE: usize = 8 << 20;
    let mut guest = guest(soft());
    let of = |chunk: u32| {
        let mut args = [0; 16];
        args[14] = chunk;
        args
    };
    let piece = vec![b' '; PIECE];
    guest.call(Op::ModuleLoadData, &of(CHUNK_FIRST), &piece).nothing();
    for _ in 1..(1 << 30) / PIECE {
        guest.call(Op::ModuleLoadData, &of(CHUNK_MIDDLE), &piece).nothing();
    }
    assert_eq!(guest.call(Op::ModuleLoadData, &of(CHUNK_MIDDLE), b" ").failed(), 2);
    assert_eq!(guest.call(Op::ModuleLoadData, &of(CHUNK_LAST), b" ").failed(), 200, "nothing is left of it");
    let module = guest.load(&text(PTX));
    guest.works(module);
}

#[test]
fn modules_have_functions_and_variables_until_they_go() {
    let mut guest = guest(soft());
    let module = guest.load(&text(PTX));
    let function = guest.function(module, "scale");
    assert_eq!(guest.function(module, "scale"), function, "a kernel is one function");
    let get = |guest: &mut Guest, op, module, bytes: &[u8]| guest.call(op, &wide(&[module]), bytes);
    assert_eq!(get(&mut guest, Op::ModuleGetFunction, module, b"scal\0").failed(), 500);
    assert_eq!(get(&mut guest, Op::ModuleGetFunction, module, b"scale").failed(), 1, "no zero");
    assert_eq!(get(&mut guest, Op::ModuleGetFunction, 12345, b"scale\0").failed(), 1);
    let [address, bytes] = get(&mut guest, Op::ModuleGetGlobal, module, b"start\0").ok()[..] else {
        panic!("address and size")
    };
    assert_eq!((bytes, guest.get(address, 4)), (4, vec![3, 0, 0, 0]));
    guest.put(address, &[9; 4]).nothing();
    assert_eq!(guest.put(address, &[9; 5]).failed(), 1, "beyond the variable");
    assert_eq!(get(&mut guest, Op::ModuleGetGlobal, module, b"end\0").failed(), 500);

    let attribute = |guest: &mut Guest, id: u32| {
        let [low, high] = vgpu_wire::v1::split(function);
        guest.call(Op::FuncGetAttribute, &[id, 0, low, high], &[])
    };
    assert_eq!(attribute(&mut guest, 0).one(), 1024);
    assert_eq!(attribute(&mut guest, 6).one(), 61);
    assert_eq!(attribute(&mut guest, 8).one(), 48 << 10);
    assert_eq!(attribute(&mut guest, 16).failed(), 1);
    let mut cache = wide(&[function]);
    cache.extend([3, 0]);
    guest.call(Op::FuncSetCacheConfig, &cache, &[]).nothing();
    cache[2] = 4;
    assert_eq!(guest.call(Op::FuncSetCacheConfig, &cache, &[]).failed(), 1);
    let mut param = |index: u64| guest.call(Op::FuncGetParamInfo, &wide(&[function, index]), &[]);
    assert_eq!(param(0).ok(), [0, 8]);
    assert_eq!(param(2).ok(), [12, 4]);
    assert_eq!(param(3).failed(), 1);

    guest.call(Op::ModuleUnload, &wide(&[module]), &[]).nothing();
    guest.call(Op::ModuleUnload, &wide(&[module]), &[]).nothing();
    assert_eq!(attribute(&mut guest, 0).failed(), 400);
    assert_eq!(guest.put(address, &[9; 4]).failed(), 1);
    let gone = guest.call(Op::LaunchKernel, &[], &launch(function, LAUNCH_RAW, 3, &[0; 16]));
    assert_eq!(gone.failed(), 400);
}

#[test]
fn libraries_keep_their_module() {
    let mut guest = guest(soft());
    let library = guest.call(Op::LibraryLoadData, &[], &text(PTX)).one();
    let module = guest.call(Op::LibraryGetModule, &wide(&[library]), &[]).one();
    assert_ne!(library, module);
    guest.call(Op::ModuleUnload, &wide(&[module]), &[]).nothing();
    guest.works(module);
    assert_eq!(guest.call(Op::LibraryGetModule, &wide(&[module]), &[]).failed(), 400);
    guest.call(Op::LibraryUnload, &wide(&[library]), &[]).nothing();
    assert_eq!(guest.call(Op::LibraryUnload, &wide(&[library]), &[]).failed(), 400);
    assert_eq!(guest.call(Op::ModuleGetFunction, &wide(&[module]), b"scale\0").failed(), 1);
}

#[test]
fn values_of_a_legacy_launch_find_their_places() {
    let mut guest = guest(soft());
    let module = guest.load(&text(PTX));
    let function = guest.function(module, "scale");
    let address = guest.alloc(8);
    let mut run = |sizes: &[u32], values: &[u8]| {
        guest.put(address, [2_u32, 3].as_bytes()).nothing();
        let rest = [sizes.as_bytes(), values].concat();
        let done =
            guest.call(Op::LaunchKernel, &[], &launch(function, LAUNCH_LEGACY, sizes.len() as u32, &rest));
        (done, guest.get(address, 8))
    };
    // The original guest sends eight bytes for each value whose size it does not know.
    let (done, data) = run(&[8, 8, 8], [address, 0xdead_0000_0002, 0xdead_0000_0005].as_bytes());
    done.nothing();
    assert_eq!(data, [10_u32, 15].as_bytes());
    let values = [address.as_bytes(), 1_u32.as_bytes(), 4_u32.as_bytes()].concat();
    let (done, data) = run(&[8, 4, 4], &values);
    done.nothing();
    assert_eq!(data, [8_u32, 3].as_bytes());
    assert_eq!(run(&[8, 4], &values).0.failed(), 1, "fewer than the kernel has");
    assert_eq!(run(&[8, 4, 4], &values[..15]).0.failed(), 1, "beyond the payload");
}

#[test]
fn launches_are_checked_before_anything_is_done() {
    let mut guest = guest(soft());
    let module = guest.load(&text(PTX));
    let function = guest.function(module, "scale");
    let address = guest.alloc(64);
    let params = [address.as_bytes(), 5_u32.as_bytes(), 7_u32.as_bytes()].concat();
    let good = launch(function, LAUNCH_RAW, 3, &params);
    let mut code = |payload: &[u8]| guest.call(Op::LaunchKernel, &[], payload).code;
    assert_eq!(code(&good), 0);
    assert_eq!(code(&[&good[..], &[0xee; 2000]].concat()), 0, "what follows is padding");
    assert_eq!(code(&good[..59]), 1, "shorter than its head");
    assert_eq!(code(&good[..75]), 1, "shorter than its parameters");
    assert_eq!(code(&launch(function, 2, 3, &params)), 1, "another mode");
    assert_eq!(code(&launch(function + 1, LAUNCH_RAW, 3, &params)), 400);
    assert_eq!(code(&launch(0, LAUNCH_RAW, 3, &params)), 400);
    assert_eq!(code(&launch(function, LAUNCH_RAW, 3, &params[..12])), 1, "too few for the kernel");
    assert_eq!(code(&launch(function, LAUNCH_RAW, 3, &vec![0; 40_000])), 1, "too many for any");
    let mut wide_block = good.clone();
    wide_block[20..24].copy_from_slice(&2000_u32.to_le_bytes());
    assert_eq!(code(&wide_block), 1);
    let mut no_grid = good.clone();
    no_grid[8..12].fill(0);
    assert_eq!(code(&no_grid), 1);
    // An unknown stream means the default stream.
    let mut stream = good;
    stream[36..44].copy_from_slice(&12345_u64.to_le_bytes());
    assert_eq!(code(&stream), 0);
}

/// The mediator waits for the work of each call, even if the executor completes it later and in another
/// order.
#[test]
fn work_that_is_done_later_is_waited_for() {
    for seed in 0..8 {
        let mut guest = guest(std::sync::Arc::new(Soft::adversarial(&gpu(), seed).unwrap()));
        let module = guest.load(&text(PTX));
        for _ in 0..20 {
            guest.works(module);
        }
        let stream = guest.call(Op::StreamCreate, &[1], &[]).one();
        let event = guest.call(Op::EventCreate, &[0], &[]).one();
        let address = guest.alloc(1 << 20);
        for round in 1..=20_u8 {
            let data = vec![round; 1 << 20];
            guest.call(Op::MemcpyHtoDAsync, &wide(&[address, 1 << 20, stream]), &data).nothing();
            guest.call(Op::EventRecord, &wide(&[event, stream]), &[]).nothing();
            while guest.call(Op::EventQuery, &wide(&[event]), &[]).code == 600 {}
            while guest.call(Op::StreamQuery, &wide(&[stream]), &[]).code == 600 {}
            assert_eq!(guest.get(address, 1 << 20), data);
        }
    }
}
