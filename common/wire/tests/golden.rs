//! Compares each message of the table, encoded from its fields, with the golden bytes recorded in
//! `golden.txt`. A change there is a change of the contract and requires a new `WIRE_VERSION`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use vgpu_wire::body::{
    copy, gemm, graph, launch, link, matmul, memory, module, pages, session, stream, vector,
};
use vgpu_wire::facts::exec;
use vgpu_wire::{
    Body, FLAG_JOIN, Header, Kind, Mark, Message, Payload, Span, TABLE_DIGEST, extension_digest, padded,
};
use zerocopy::IntoBytes;

/// Encodes one message the way a guest does.
fn encode<P: Payload>(number: u32, join: Option<u32>, body: &P, tail: &[u8]) -> Vec<u8> {
    let content = size_of::<Header>() + body.as_bytes().len() + tail.len();
    let bytes = padded(content as u64);
    let header = Header {
        kind: P::KIND as u16,
        flags: if join.is_some() { FLAG_JOIN } else { 0 },
        bytes: bytes as u32,
        number,
        join: join.unwrap_or(0),
    };
    let mut out = header.as_bytes().to_vec();
    out.extend_from_slice(body.as_bytes());
    out.extend_from_slice(tail);
    out.resize(bytes as usize, 0);
    out
}

fn span() -> Span {
    Span { segment: 7, reserved: 0, offset: 0x1122_3344_5566, bytes: 0x77_8899 }
}

fn mark() -> Mark {
    Mark::new(0x3ff, 0x0102_0304_0506_0708)
}

/// Returns one message of each kind. Each field has a value of its own, so that exchanged fields are noticed.
fn samples() -> BTreeMap<&'static str, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut number = 0;
    macro_rules! sample {
        ($body:expr) => {
            sample!($body, b"")
        };
        ($body:expr, $tail:expr) => {{
            fn name<P: Payload>(_: &P) -> &'static str {
                P::KIND.name()
            }
            number += 1;
            let body = $body;
            let join = (number % 3 == 0).then_some(number + 0x100);
            all.insert(name(&body), encode(number, join, &body, $tail));
        }};
    }
    sample!(session::Pad {}, &[0xee; 16]);
    sample!(session::Hello { reply: 1, process: 0x2222, reserved: 0 });
    sample!(session::Echo { reply: 1, reserved: 0, cookie: 0xa1a2_a3a4_a5a6_a7a8 });
    sample!(session::WindowAlloc { reply: 1, reserved: 0, bytes: 0x0011_2233 });
    sample!(session::WindowFree { offset: 0x1122_3344_5566 });
    sample!(pages::PagesRegister { reply: 1, segment: 2, runs: 1, reserved: 0 }, &[0xab; 16]);
    sample!(pages::PagesUnregister { reply: 1, segment: 2 });
    sample!(memory::MemAlloc { reply: 1, flags: memory::MEM_MANAGED, bytes: 0x1_0000_0001 });
    sample!(memory::MemFree { address: 0x7f00_1122_3344 });
    sample!(memory::MemInfo { reply: 1, reserved: 0 });
    sample!(memory::MemAllocAsync { reply: 1, stream: 2, bytes: 3 });
    sample!(memory::MemFreeAsync { stream: 1, reserved: 0, address: 0x7f00_1122_3344 });
    sample!(memory::MemReserve { reply: 1, reserved: 0, bytes: 2, alignment: 3, hint: 4 });
    sample!(memory::MemUnreserve { address: 1, bytes: 2 });
    sample!(memory::MemCreate { reply: 1, handle: 2, bytes: 3 });
    sample!(memory::MemRelease { handle: 1, reserved: 0 });
    sample!(memory::MemMap { handle: 1, reserved: 0, address: 2, bytes: 3, offset: 4 });
    sample!(memory::MemUnmap { address: 1, bytes: 2 });
    sample!(memory::MemSetAccess { address: 1, bytes: 2, access: 3, reserved: 0 });
    sample!(
        copy::CopyIn { stream: 1, reserved: 0, destination: 2, source: Span::inline(5), read: mark() },
        b"hello"
    );
    sample!(copy::CopyOut { stream: 1, reserved: 0, source: 2, destination: span(), written: mark() });
    sample!(copy::CopyDevice { stream: 1, reserved: 0, destination: 2, source: 3, bytes: 4 });
    sample!(copy::CopyRows {
        stream: 1,
        reserved: 0,
        destination: 2,
        destination_pitch: 3,
        destination_slice: 4,
        source: 5,
        source_pitch: 6,
        source_slice: 7,
        width: 8,
        height: 9,
        depth: 10,
    });
    sample!(copy::Fill {
        stream: 1,
        value: 2,
        element: 4,
        reserved: 0,
        destination: 3,
        pitch: 4,
        width: 5,
        height: 6
    });
    sample!(module::ModuleOpen {
        reply: 1,
        module: 2,
        image: module::IMAGE_PTX,
        reserved: 0,
        bytes: 3,
        digest: [0xd1; 32]
    });
    sample!(module::ModuleData { module: 1, reserved: 0, offset: 2, data: Span::inline(3) }, b"ptx");
    sample!(module::ModuleLoad { reply: 1, module: 2 });
    sample!(module::ModuleUnload { module: 1, reserved: 0 });
    sample!(module::FunctionGet { reply: 1, module: 2, function: 3, name_bytes: 6 }, b"kernel");
    sample!(module::FunctionSet { function: 1, attribute: 8, value: -1, reserved: 0 });
    sample!(module::Occupancy { reply: 1, function: 2, block_threads: 3, flags: 4, shared_bytes: 5 });
    sample!(module::GlobalGet { reply: 1, module: 2, name_bytes: 3, reserved: 0 }, b"var");
    sample!(
        launch::Launch {
            function: 1,
            stream: 2,
            grid: [3, 4, 5],
            block: [6, 7, 8],
            cluster: [9, 10, 11],
            shared_bytes: 12,
            flags: launch::LAUNCH_COOPERATIVE,
            param_bytes: 13,
            priority: -2,
            reserved: 0,
        },
        b"parameterbyte"
    );
    sample!(stream::StreamCreate { stream: 1, flags: 1, priority: -3, reserved: 0 });
    sample!(stream::StreamDestroy { stream: 1, reserved: 0 });
    sample!(stream::Signal { stream: 1, reserved: 0, mark: mark() });
    sample!(stream::Join { stream: 1, reserved: 0 });
    sample!(stream::EventCreate { event: 1, flags: 2 });
    sample!(stream::EventDestroy { event: 1, reserved: 0 });
    sample!(stream::EventRecord { event: 1, stream: 2, mark: mark() });
    sample!(stream::StreamWait { stream: 1, event: 2 });
    sample!(graph::GraphDefine { graph: 1, nodes: 2, flags: 3, records: span() });
    sample!(graph::GraphUpdate { graph: 1, nodes: 2, reserved: 0, records: Span::inline(4) }, b"node");
    sample!(graph::GraphLaunch { graph: 1, stream: 2 });
    sample!(graph::GraphDestroy { graph: 1, reserved: 0 });
    sample!(gemm::Gemm {
        stream: 1,
        flags: gemm::GEMM_POINTERS,
        operation: [2, 3],
        types: [4, 5, 6],
        compute: 7,
        scale: 8,
        algorithm: -1,
        math: 9,
        batch: 10,
        size: [11, 12, 13],
        leading: [14, 15, 16],
        stride: [17, -18, 19],
        matrix: [20, 21, 22],
        alpha: [23; 16],
        beta: [24; 16],
        workspace: 25,
        workspace_bytes: 26,
    });
    sample!(gemm::TriangularSolve {
        stream: 1,
        flags: gemm::GEMM_DEVICE_SCALARS,
        side: 2,
        fill: 3,
        operation: 4,
        diagonal: 5,
        element: 6,
        batch: 7,
        size: [8, 9],
        leading: [10, 11],
        matrix: [12, 13],
        alpha: [14; 16],
        reserved: 0,
    });
    sample!(stream::StreamHold { stream: 1, hold: 2, mark: mark() });
    sample!(stream::StreamRelease { hold: 1, reserved: 0 });
    sample!(matmul::MatmulLt {
        stream: 1,
        flags: gemm::GEMM_DEVICE_SCALARS,
        operation: [2, 3],
        types: [4, 5, 6, 7],
        compute: 8,
        scale: 9,
        epilogue: 10,
        bias_type: 11,
        aux_type: 12,
        batch: 13,
        size: [14, 15, 16],
        leading: [17, 18, 19, 20],
        stride: [21, -22, 23, 24],
        matrix: [25, 26, 27, 28],
        alpha: [29; 16],
        beta: [30; 16],
        bias: 31,
        bias_stride: -32,
        aux: 33,
        aux_leading: 34,
        aux_stride: -35,
        workspace: 36,
        workspace_bytes: 37,
        reserved: [0; 2],
    });
    sample!(vector::VectorOp {
        stream: 1,
        flags: gemm::GEMM_DEVICE_SCALARS,
        operation: vector::VECTOR_AXPY,
        x_type: 2,
        y_type: 3,
        scalar_type: 4,
        compute: 6,
        reserved: 0,
        elements: 7,
        step: [8, -9],
        vector: [10, 11],
        alpha: [12; 16],
        result: 13,
    });
    sample!(link::LinkOpen {
        reply: 1,
        link: 2,
        flags: link::LINK_DEBUG,
        max_registers: 3,
        threads_per_block: 4,
        optimization: 5,
        target: 6,
        reserved: 0,
    });
    sample!(link::LinkInput { link: 1, kind: 2, name_bytes: 4, reserved: 0, bytes: 3 }, b"name");
    sample!(link::LinkData { link: 1, reserved: 0, offset: 2, data: Span::inline(3) }, b"ptx");
    sample!(link::LinkComplete { reply: 1, link: 2 });
    sample!(link::LinkRead { reply: 1, link: 2, offset: 3 });
    sample!(link::LinkClose { link: 1, reserved: 0 });
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn every_kind_has_its_recorded_bytes() {
    let samples = samples();
    assert_eq!(samples.len(), Kind::ALL.len(), "one sample for each kind of the table");
    let recorded: BTreeMap<&str, &str> = include_str!("golden.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .collect();
    let mut wrong = String::new();
    for (name, bytes) in &samples {
        let now = hex(bytes);
        if recorded.get(name).copied() != Some(now.as_str()) {
            let _ = writeln!(wrong, "{name} {now}");
        }
    }
    assert!(wrong.is_empty(), "these differ from golden.txt:\n{wrong}");
    assert_eq!(recorded.len(), samples.len(), "no line of golden.txt is left over");
}

#[test]
fn every_sample_decodes_to_itself() {
    for (name, bytes) in samples() {
        let message = Message::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(message.body.kind().name(), name);
        assert_eq!(usize::try_from(message.header.bytes).unwrap(), bytes.len());
        assert_eq!(message.body.reply().is_some(), message.body.kind().replies());
        if let Body::Launch(body) = message.body {
            assert_eq!(message.tail, b"parameterbyte");
            assert_eq!(body.grid, [3, 4, 5]);
        }
    }
}

/// Returns the rest of the line of `golden.txt` that starts with `beginning`.
fn recorded(beginning: &str) -> Option<&'static str> {
    include_str!("golden.txt").lines().find_map(|line| line.strip_prefix(beginning))
}

#[test]
fn the_digest_is_recorded() {
    let digest = format!("{TABLE_DIGEST:#018x}");
    assert_eq!(recorded("# digest "), Some(digest.as_str()), "the table has changed");
}

/// Checks that extensions are unchanged: a changed extension needs new kinds and a new bit, because hosts and
/// guests of other builds rely on the meaning of the bit.
#[test]
fn extensions_are_recorded() {
    let mut seen = 0;
    for (name, ability) in
        [("EPILOGUES", exec::EPILOGUES), ("VECTORS", exec::VECTORS), ("LINKS", exec::LINKS)]
    {
        let digest = format!("{:#018x}", extension_digest(ability));
        let line = recorded(&format!("# extension {name} "));
        assert_eq!(line, Some(digest.as_str()), "the extension {name} has changed");
        seen |= ability;
    }
    let announced = Kind::ALL.iter().filter_map(|kind| kind.ability()).fold(0, |bits, bit| bits | bit);
    assert_eq!(announced, seen, "every extension has a line");
    let base = exec::KERNELS | exec::CUBIN | exec::PTX | exec::HOLDS;
    assert_eq!(announced & base, 0, "bits of the first hosts announce no kinds");
}
