//! Messages that most tests of executors send: memory, modules, launches, graphs.

use std::io::Write;
use std::sync::{Mutex, Once};

use sha2::{Digest, Sha256};
use vgpu_executor_soft::{Soft, SoftOptions, TestHooks};
use vgpu_wire::body::copy::{CopyIn, CopyOut, Fill};
use vgpu_wire::body::gemm::Gemm;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::MemAlloc;
use vgpu_wire::body::module::{
    FunctionGet, FunctionReply, ModuleData, ModuleLoad, ModuleOpen, ModuleOpenReply,
};
use vgpu_wire::body::session::{WindowAlloc, WindowAllocReply, WindowFree};
use vgpu_wire::body::stream::{Signal, StreamCreate};
use vgpu_wire::{JOIN_ALL, Mark, Payload, Span};
use zerocopy::{FromBytes, IntoBytes};

use super::bench::{Bench, config, gpu};
use super::guest::{Guest, message};

/// Completion word on which this module waits.
const WORD: u32 = 1000;

/// PTX of the kernels that most tests use.
pub const KERNELS: &str = include_str!("kernels.ptx");

/// Serves a device with a soft executor that has these options.
pub fn bench_with(options: SoftOptions) -> Bench {
    Bench::with(config(Soft::with_options(&gpu(), options).expect("a soft executor")))
}

/// Serves a device with a soft executor that has these hooks.
pub fn bench_hooked(hooks: TestHooks) -> Bench {
    let soft = Soft::with_hooks(&gpu(), SoftOptions::default(), hooks);
    Bench::with(config(soft.expect("a soft executor")))
}

/// Serves a device whose executor draws the order of independent streams' work from `seed`.
pub fn adversarial(seed: u64) -> Bench {
    bench_hooked(TestHooks { adversary: Some(seed), ..TestHooks::default() })
}

/// Allocates device memory and returns its address.
pub fn allocate(guest: &mut Guest, bytes: u64) -> u64 {
    let (status, data) = guest.call(MemAlloc { reply: 0, flags: 0, bytes }, &[]);
    assert_eq!(status, 0);
    u64::from_le_bytes(data.try_into().expect("an address"))
}

/// Allocates window memory and returns its offset.
pub fn window(guest: &mut Guest, bytes: u64) -> u64 {
    let (status, data) = guest.call(WindowAlloc { reply: 0, reserved: 0, bytes }, &[]);
    assert_eq!(status, 0);
    WindowAllocReply::read_from_bytes(&data).expect("an offset").offset
}

/// Copies `data` to device memory and returns the message's number.
pub fn copy_in(guest: &mut Guest, stream: u32, destination: u64, data: &[u8]) -> u64 {
    let source = Span::inline(data.len() as u64);
    guest.send(&CopyIn { stream, reserved: 0, destination, source, read: Mark::NONE }, data)
}

/// Waits for all work that the guest has submitted.
pub fn synchronize(guest: &mut Guest) {
    let value = guest.number + 1;
    guest.send(&Signal { stream: JOIN_ALL, reserved: 0, mark: Mark::new(WORD, value) }, &[]);
    guest.wait_word(WORD, value);
}

/// Reads device memory after all work.
pub fn read(guest: &mut Guest, source: u64, bytes: u64) -> Vec<u8> {
    synchronize(guest);
    let offset = window(guest, bytes);
    let value = guest.number + 1;
    let destination = Span::bar(offset, bytes);
    guest
        .send(&CopyOut { stream: 0, reserved: 0, source, destination, written: Mark::new(WORD, value) }, &[]);
    guest.wait_word(WORD, value);
    let data = guest.function.get(offset, bytes);
    guest.send(&WindowFree { offset }, &[]);
    data
}

/// Reads a 32-bit value of device memory after all work.
pub fn read_u32(guest: &mut Guest, source: u64) -> u32 {
    u32::from_le_bytes(read(guest, source, 4).try_into().expect("four bytes"))
}

/// Opens and loads a module, and sends its image unless the host has it. Returns whether the host had it, or
/// the status of the first call that fails.
pub fn try_load(guest: &mut Guest, module: u32, text: &str) -> Result<bool, u32> {
    let known = send_module(guest, module, text)?;
    match guest.call(ModuleLoad { reply: 0, module }, &[]).0 {
        0 => Ok(known),
        status => Err(status),
    }
}

/// Opens a module and sends its image unless the host has it. Returns whether the host had it.
pub fn send_module(guest: &mut Guest, module: u32, text: &str) -> Result<bool, u32> {
    let digest = Sha256::digest(text).into();
    let open = ModuleOpen { reply: 0, module, image: 1, reserved: 0, bytes: text.len() as u64, digest };
    let (status, data) = guest.call(open, &[]);
    if status != 0 {
        return Err(status);
    }
    let known = ModuleOpenReply::read_from_bytes(&data).expect("an answer").known == 1;
    if !known {
        for (index, piece) in text.as_bytes().chunks(1000).enumerate() {
            let data = Span::inline(piece.len() as u64);
            guest.send(&ModuleData { module, reserved: 0, offset: 1000 * index as u64, data }, piece);
        }
    }
    Ok(known)
}

/// Loads [`KERNELS`] as a module.
pub fn load(guest: &mut Guest, module: u32) {
    try_load(guest, module, KERNELS).expect("the kernels");
}

/// Requests a kernel of a module. Returns its attributes, or the status of a failure.
pub fn try_function(guest: &mut Guest, module: u32, function: u32, name: &str) -> Result<FunctionReply, u32> {
    let body = FunctionGet { reply: 0, module, function, name_bytes: name.len() as u32 };
    match guest.call(body, name.as_bytes()) {
        (0, data) => Ok(FunctionReply::read_from_bytes(&data).expect("attributes")),
        (status, _) => Err(status),
    }
}

/// Requests a kernel of module 1, and returns its attributes.
pub fn function(guest: &mut Guest, function: u32, name: &str) -> FunctionReply {
    try_function(guest, 1, function, name).expect(name)
}

/// A fill of one row of no bytes on the default stream, as a template for tests.
pub const FILL: Fill =
    Fill { stream: 0, value: 0, element: 1, reserved: 0, destination: 0, pitch: 0, width: 0, height: 1 };

/// A launch of one block on the default stream, as a template for tests.
pub const LAUNCH: Launch = Launch {
    function: 0,
    stream: 0,
    grid: [1; 3],
    block: [32, 1, 1],
    cluster: [0; 3],
    shared_bytes: 0,
    flags: 0,
    param_bytes: 0,
    priority: 0,
    reserved: 0,
};

/// Creates a message for a product of square matrices of single precision with this number of rows, without a
/// workspace of its own: of the first two matrices, to the third.
pub fn product(rows: u64, matrix: [u64; 3]) -> Gemm {
    let mut one = [0; 16];
    one[..4].copy_from_slice(&1_f32.to_le_bytes());
    Gemm {
        stream: 0,
        flags: 0,
        operation: [0; 2],
        types: [0; 3],
        compute: 68,
        scale: 0,
        algorithm: -1,
        math: 0,
        batch: 1,
        size: [rows; 3],
        leading: [rows; 3],
        stride: [0; 3],
        matrix,
        alpha: one,
        beta: [0; 16],
        workspace: 0,
        workspace_bytes: 0,
    }
}

/// Encodes the parameters of a kernel that takes an address and then numbers.
pub fn params(address: u64, numbers: &[u32]) -> Vec<u8> {
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend_from_slice(numbers.as_bytes());
    bytes
}

/// Launches a kernel and returns the message's number.
pub fn launch(guest: &mut Guest, body: Launch, params: &[u8]) -> u64 {
    guest.send(&Launch { param_bytes: params.len() as u32, ..body }, params)
}

/// Creates a stream with this number and these flags.
pub fn stream(guest: &mut Guest, number: u32, flags: u32) {
    guest.send(&StreamCreate { stream: number, flags, priority: 0, reserved: 0 }, &[]);
}

/// Returns everything that all tests of this process have logged since the first call.
pub fn log() -> String {
    struct Sink;
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            LOG.lock().expect("the log").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    static START: Once = Once::new();
    START.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Sink).init());
    String::from_utf8_lossy(&LOG.lock().expect("the log")).into_owned()
}

/// Encodes a record of `GraphDefine`.
pub fn node<P: Payload>(dependencies: &[u32], body: &P, tail: &[u8]) -> Vec<u8> {
    let mut record: Vec<u8> = dependencies.iter().flat_map(|node| node.to_le_bytes()).collect();
    record.resize(record.len().next_multiple_of(8), 0);
    record.extend_from_slice(&message(body, tail, 0));
    let mut bytes = (8 + record.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&(dependencies.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&record);
    bytes
}

/// Encodes a record of `GraphUpdate`.
pub fn patch<P: Payload>(node: u32, body: &P, tail: &[u8]) -> Vec<u8> {
    let message = message(body, tail, 0);
    let mut bytes = (8 + message.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&node.to_le_bytes());
    bytes.extend_from_slice(&message);
    bytes
}
