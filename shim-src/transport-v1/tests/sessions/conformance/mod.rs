//! Tests this guest against version 1's description: each row of the table of calls, the accesses to
//! registers, the limits, and the quirks that concern a guest.
//!
//! Other files cover the following quirks. Q4 among old guests, Q6, Q14, Q23, Q24 and the error codes:
//! `src/recorded_calls.rs`, access by access. Q3, Q10: `version1.rs`, with every size and several processes.
//! Q13, Q16, Q22 concern the host (`host/v1/tests/main`). Q18: libcuda turns `extra` into the buffer that
//! `Launch` carries, which is the RAW form here. Q25: only libcuda has a transport.

mod quirks;
mod recorder;
mod registers;
mod table;

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_device::Executor;
use vgpu_device_v1::{MediatorPlace, Watch};
use vgpu_transport::{Device, Session};
use vgpu_transport_bed::{allocate, copy_in, copy_out, echo, fill, functions, pattern, signal, soft};
use vgpu_wire::body::copy::CopyDevice;
use vgpu_wire::body::gemm::{GEMM_POINTERS, Gemm};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{MemFree, MemInfo};
use vgpu_wire::body::module::{
    FUNCTION_CACHE_CONFIG, FunctionGet, FunctionSet, GlobalGet, IMAGE_PTX, ModuleData, ModuleLoad,
    ModuleOpen, ModuleUnload,
};
use vgpu_wire::body::stream::{
    EventCreate, EventDestroy, EventRecord, StreamCreate, StreamDestroy, StreamWait,
};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::{owner, split};
use vgpu_wire::{JOIN_ALL, Span};
use zerocopy::{FromZeros, IntoBytes};

use crate::version1::{Bed, NO_MEMORY, WINDOWED, attach_in};
use recorder::{Got, Recorder};
use table::{Arg, Expected, Part, ROWS};

/// PTX of a kernel that multiplies `n` words at `p` by `f`.
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

/// A device, and a mediator that records its calls.
struct Bench {
    bed: Bed,
    recorder: Recorder,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(executor: Arc<dyn Executor>, ram: u64, watch: Option<Arc<dyn Watch>>) -> Self {
        let folder = vgpu_transport_bed::folder();
        let recorder = Recorder::start(folder.path(), executor);
        let bed = Bed::with(MediatorPlace::Socket(recorder.path.clone()), ram, watch);
        Self { bed, recorder, _folder: folder }
    }

    fn of(ram: u64) -> Self {
        Self::new(soft("version 1"), ram, None)
    }

    fn attach(&self) -> Session {
        attach_in(self.bed.dir())
    }
}

/// Opens and loads a module under this number.
pub fn load(session: &Session, module: u32, image: &str) -> u32 {
    let image = image.as_bytes();
    let bytes = image.len() as u64;
    let open =
        ModuleOpen { reply: 0, module, image: IMAGE_PTX, reserved: 0, bytes, digest: [module as u8; 32] };
    assert_eq!(session.call(open, &[], &mut [0; 8]).unwrap().status, 0);
    for (index, piece) in image.chunks(16 << 10).enumerate() {
        let offset = (index * (16 << 10)) as u64;
        let data = Span::inline(piece.len() as u64);
        session.send(&ModuleData { module, reserved: 0, offset, data }, &[piece]).unwrap();
    }
    session.call(ModuleLoad { reply: 0, module }, &[], &mut []).unwrap().status
}

/// Looks up function 1 of module 1 and returns its number.
pub fn function(session: &Session) -> u32 {
    let get = FunctionGet { reply: 0, module: 1, function: 1, name_bytes: 5 };
    session.call(get, &[b"scale"], &mut [0; 64]).unwrap().status
}

fn launch(session: &Session, [grid, block]: [[u32; 3]; 2], address: u64, words: u32, factor: u32) {
    let mut launch = Launch::new_zeroed();
    launch.function = 1;
    launch.grid = grid;
    launch.block = block;
    launch.shared_bytes = 128;
    launch.param_bytes = 16;
    let params = [address.as_bytes(), words.as_bytes(), factor.as_bytes()].concat();
    session.send(&launch, &[&params]).unwrap();
}

/// Returns a message for `batch` products of a 2x4 and a 4x3 matrix.
fn gemm(matrix: [u64; 3], flags: u32, batch: u32) -> Gemm {
    let mut gemm = Gemm::new_zeroed();
    gemm.flags = flags;
    gemm.operation = [1, 0];
    gemm.compute = 68;
    gemm.algorithm = -1;
    gemm.batch = batch;
    gemm.size = [2, 3, 4];
    gemm.leading = [5, 6, 7];
    gemm.stride = [32; 3];
    gemm.matrix = matrix;
    gemm.alpha[..4].copy_from_slice(&2.5_f32.to_le_bytes());
    gemm.beta[..4].copy_from_slice(&(-1.0_f32).to_le_bytes());
    gemm
}

/// Values of a test run, under the names by which the table refers to them.
#[derive(Default)]
struct Known {
    values: HashMap<&'static str, u64>,
    blobs: HashMap<&'static str, Vec<u8>>,
}

impl Known {
    fn arg(&self, arg: Arg) -> u32 {
        match arg {
            Arg::V(value) => value,
            Arg::Lo(name) => split(self.values[name])[0],
            Arg::Hi(name) => split(self.values[name])[1],
        }
    }

    fn part(&self, part: Part) -> Vec<u8> {
        match part {
            Part::U32(value) => value.to_le_bytes().to_vec(),
            Part::U64(name) => self.values[name].to_le_bytes().to_vec(),
            Part::F32(value) => value.to_le_bytes().to_vec(),
            Part::Text(text) => text.as_bytes().to_vec(),
            Part::Blob(name) => self.blobs[name].clone(),
        }
    }
}

/// Performs each operation of a session once. Returns the values that the table refers to.
fn everything(bench: &Bench) -> Known {
    let mut known = Known::default();
    let looking = Device::identify(&functions(bench.bed.dir())[0], Some(vgpu_transport_v1::open)).unwrap();
    assert!(looking.facts().unwrap().total_bytes > 0);
    let session = bench.attach();
    known.values.insert("token", u64::from(0x80_0000 | session.channel()));
    echo(&session, 3);
    let address = allocate(&session, 0x1_0203);
    let other = allocate(&session, 4096);
    let data = pattern(4, 60);
    copy_in(&session, address, &data);
    copy_out(&session, address, 2000);
    let copy =
        CopyDevice { stream: 0, reserved: 0, destination: other, source: address, bytes: data.len() as u64 };
    session.send(&copy, &[]).unwrap();
    assert_eq!(copy_out(&session, other, data.len()), data);
    fill(&session, address, 1, 0xab, 7);
    fill(&session, address, 4, 0xdead_beef, 5);
    assert_eq!(copy_out(&session, address, 20), [0xef, 0xbe, 0xad, 0xde].repeat(5));
    session.call(MemInfo { reply: 0, reserved: 0 }, &[], &mut [0; 16]).unwrap();

    assert_eq!(load(&session, 1, PTX), 0);
    assert_eq!(function(&session), 0);
    let cache = FunctionSet { function: 1, attribute: FUNCTION_CACHE_CONFIG, value: 2, reserved: 0 };
    session.send(&cache, &[]).unwrap();
    let global = GlobalGet { reply: 0, module: 1, name_bytes: 5, reserved: 0 };
    assert_eq!(session.call(global, &[b"start"], &mut [0; 16]).unwrap().status, 0);
    let words: Vec<u32> = (1..=16).collect();
    copy_in(&session, address, words.as_bytes());
    // The kernels process no words, whatever number of threads they have.
    launch(&session, [[2, 3, 5], [8, 4, 2]], address, 0, 3);
    launch(&session, [[1; 3], [32, 1, 1]], address, 16, 3);
    let thrice: Vec<u32> = words.iter().map(|word| 3 * word).collect();
    assert_eq!(copy_out(&session, address, 64), thrice.as_bytes());

    // Streams and events take no calls.
    let word = session.word().unwrap();
    session.send(&StreamCreate { stream: 1, flags: 1, priority: 0, reserved: 0 }, &[]).unwrap();
    session.send(&EventCreate { event: 1, flags: 0 }, &[]).unwrap();
    session.send(&EventRecord { event: 1, stream: 1, mark: word.mark() }, &[]).unwrap();
    session.send(&StreamWait { stream: 1, event: 1 }, &[]).unwrap();
    session.join(JOIN_ALL);
    let mark = word.mark();
    session.send(&signal(mark), &[]).unwrap();
    session.wait(mark.word, mark.value).unwrap();
    session.send(&EventDestroy { event: 1, reserved: 0 }, &[]).unwrap();
    session.send(&StreamDestroy { stream: 1, reserved: 0 }, &[]).unwrap();

    let [a, b, c] = [0, 1, 2].map(|_| allocate(&session, 4096));
    session.send(&gemm([a, b, c], 0, 1), &[]).unwrap();
    session.send(&gemm([a, b, c], 0, 2), &[]).unwrap();
    let arrays = allocate(&session, 4096);
    copy_in(&session, arrays, [a, a, b, b, c, other].as_bytes());
    let pointers = [arrays, arrays + 16, arrays + 32];
    session.send(&gemm(pointers, GEMM_POINTERS, 2), &[]).unwrap();

    session.send(&ModuleUnload { module: 1, reserved: 0 }, &[]).unwrap();
    session.send(&MemFree { address: other }, &[]).unwrap();
    assert_eq!(session.late_error(), None);
    session.close();

    let result = |op: u32, index: usize| bench.recorder.of(op)[0].results[index];
    for (name, value) in [
        ("size", 0x1_0203),
        ("address", address),
        ("bytes", data.len() as u64),
        ("other", other),
        ("freed", other),
        ("module", result(0x40, 0)),
        ("function", result(0x44, 0)),
        ("no stream", 0),
        ("cublas", result(0xac, 1)),
        ("a", a),
        ("b", b),
        ("c", c),
        ("stride", 32),
    ] {
        known.values.insert(name, value);
    }
    known.blobs.insert("data", data);
    known.blobs.insert("image", PTX.as_bytes().to_vec());
    known
}

/// Returns whether the payload of a call may be padded, so that the window carries it.
fn pads(op: u32) -> bool {
    matches!(op, 0x32 | 0x44 | 0x45 | 0x50 | 0xb4 | 0xb5 | 0xb6 | 0xba)
}

fn held_to_the_table(ram: u64) {
    let bench = Bench::of(ram);
    let known = everything(&bench);
    let got = bench.recorder.got();
    for &(id, name, expected) in ROWS {
        let calls: Vec<&Got> = got.iter().filter(|got| got.op == id).collect();
        let (args, payload) = match expected {
            Expected::Sent(args, payload) => (args, payload),
            Expected::Never(why) => {
                assert!(calls.is_empty(), "{name} is sent, though {why}");
                continue;
            }
        };
        assert!(!calls.is_empty(), "{name} is not sent");
        let args: Vec<u32> = args.iter().map(|&arg| known.arg(arg)).collect();
        assert_eq!(calls[0].args, args, "{name}");
        let payload: Vec<u8> = payload.iter().flat_map(|&part| known.part(part)).collect();
        let there = &calls[0].data;
        assert_eq!(there[..payload.len().min(there.len())], payload, "{name}");
        let padded = pads(id) && ram == WINDOWED && payload.len() <= 1024;
        assert_eq!(there.len(), if padded { 1028 } else { payload.len() }, "{name}");
        // Calls for a process name its owner. A process that only reads facts uses the machine's own.
        let own = owner(0, known.values["token"] as u32);
        assert_eq!(calls[0].owner, if matches!(id, 0x01 | 0xf0) { 0 } else { own }, "{name}");
        if id == 0xb0 {
            let asked: Vec<u32> = calls.iter().map(|call| call.args[0]).collect();
            assert_eq!(asked, [0, 1, 2, 3, 4, 5, 6, 8], "{name}");
        }
    }
    let strange: Vec<u32> =
        got.iter().map(|got| got.op).filter(|op| ROWS.iter().all(|row| row.0 != *op)).collect();
    assert!(strange.is_empty(), "calls that are in no row: {strange:x?}");
}

#[test]
fn each_row_is_sent_as_it_is_described_or_never() {
    held_to_the_table(NO_MEMORY);
    held_to_the_table(WINDOWED);
}

#[test]
fn the_table_has_every_row() {
    let ids: Vec<u32> = ROWS.iter().map(|row| row.0).collect();
    let all: Vec<u32> = Op::ALL.iter().map(|op| *op as u32).collect();
    assert_eq!(ids, all);
}
