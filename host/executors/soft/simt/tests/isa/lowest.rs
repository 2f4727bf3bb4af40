//! Tests of accesses in which several lanes fail, some misaligned and some out of bounds. The lowest of them
//! determines the fault, for any instruction, memory, and number of active lanes. Within a lane, misalignment
//! takes precedence over bounds.

use libtest_mimic::{Failed, Trial};
use vgpu_simt::{Fault, Features};

use crate::device::{Device, Params, Shape};
use crate::values::Random;

/// Number of launches of each access.
const LAUNCHES: u64 = 60;
const LANES: u64 = 32;
/// Size of each memory in bytes: of the allocation, of the block's array and of a thread's array.
const BYTES: u64 = 512;

/// Kind of the lanes' addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressKind {
    Global,
    /// Addresses of shared memory in a 32-bit register.
    Shared,
    /// Addresses of shared memory in a 64-bit register.
    SharedWide,
    Local,
    /// Generic addresses of a mixture of global, shared and local memory.
    Generic,
    /// Generic addresses of shared memory only.
    GenericShared,
}

/// An instruction to test, which accesses `[ADDRESS]`.
#[derive(Clone, Copy, Debug)]
struct FaultyAccess {
    code: &'static str,
    memory: AddressKind,
    /// Size of the access in bytes, which is also the alignment.
    size: u64,
    /// Mask of the lanes whose addresses the instruction uses.
    named: u32,
}

const LOADS: [(&str, u64); 8] = [
    ("ld.SPACE.u8 %h, [ADDRESS];", 1),
    ("ld.SPACE.u16 %h, [ADDRESS];", 2),
    ("ld.SPACE.u32 %x, [ADDRESS];", 4),
    ("ld.SPACE.u64 %l, [ADDRESS];", 8),
    ("ld.SPACE.v2.u32 {%x, %y}, [ADDRESS];", 8),
    ("ld.SPACE.v4.u32 {%x, %y, %z, %w}, [ADDRESS];", 16),
    ("ld.SPACE.v2.u64 {%l, %m}, [ADDRESS];", 16),
    ("ld.SPACE.v2.u16 {%h, %i}, [ADDRESS];", 4),
];

const STORES: [(&str, u64); 8] = [
    ("st.SPACE.u8 [ADDRESS], %h;", 1),
    ("st.SPACE.u16 [ADDRESS], %h;", 2),
    ("st.SPACE.u32 [ADDRESS], %x;", 4),
    ("st.SPACE.u64 [ADDRESS], %l;", 8),
    ("st.SPACE.v2.u32 [ADDRESS], {%x, %y};", 8),
    ("st.SPACE.v4.u32 [ADDRESS], {%x, %y, %z, %w};", 16),
    ("st.SPACE.v2.u64 [ADDRESS], {%l, %m};", 16),
    ("st.SPACE.v2.u16 [ADDRESS], {%h, %i};", 4),
];

/// Atomic instructions, which do not exist for local memory.
const ATOMICS: [(&str, u64); 5] = [
    ("atom.SPACE.add.u32 %x, [ADDRESS], 1;", 4),
    ("atom.SPACE.exch.b64 %l, [ADDRESS], 1;", 8),
    ("atom.SPACE.cas.b16 %h, [ADDRESS], %h, %i;", 2),
    ("red.SPACE.add.u32 [ADDRESS], 1;", 4),
    ("red.SPACE.max.u64 [ADDRESS], 5;", 8),
];

/// Matrix instructions in shared memory, with the masks of the lanes that provide row addresses.
const MATRICES: [(&str, u32); 5] = [
    ("ldmatrix.sync.aligned.m8n8.x1.SPACE.b16 {%x}, [ADDRESS];", 0xff),
    ("ldmatrix.sync.aligned.m8n8.x2.trans.SPACE.b16 {%x, %y}, [ADDRESS];", 0xffff),
    ("ldmatrix.sync.aligned.m8n8.x4.SPACE.b16 {%x, %y, %z, %w}, [ADDRESS];", u32::MAX),
    ("stmatrix.sync.aligned.m8n8.x2.SPACE.b16 [ADDRESS], {%x, %y};", 0xffff),
    ("stmatrix.sync.aligned.m8n8.x4.SPACE.b16 [ADDRESS], {%x, %y, %z, %w};", u32::MAX),
];

fn accesses() -> Vec<FaultyAccess> {
    use AddressKind::{Generic, GenericShared, Global, Local, Shared, SharedWide};
    let all = u32::MAX;
    let mut accesses = Vec::new();
    for memory in [Global, Shared, SharedWide, Local, Generic, GenericShared] {
        let atomics = ATOMICS.iter().filter(|_| memory != Local);
        for &(code, size) in LOADS.iter().chain(&STORES).chain(atomics) {
            accesses.push(FaultyAccess { code, memory, size, named: all });
        }
    }
    for memory in [Shared, GenericShared] {
        accesses.extend(MATRICES.map(|(code, named)| FaultyAccess { code, memory, size: 16, named }));
    }
    accesses
}

/// Returns the kernel, in which each lane loads its address from a row of a table.
fn text(access: &FaultyAccess) -> String {
    let (space, address, make) = match access.memory {
        AddressKind::Global => (".global", "%a", ""),
        AddressKind::Shared => (".shared", "%o", "cvt.u32.u64 %o, %a;"),
        AddressKind::SharedWide => (".shared", "%a", ""),
        AddressKind::Local => (".local", "%b", "mov.u64 %b, mine;\nadd.s64 %b, %b, %a;"),
        AddressKind::Generic | AddressKind::GenericShared => (
            "",
            "%a",
            "setp.eq.u32 %p, %kind, 1;\ncvta.shared.u64 %b, %a;\nselp.b64 %b, %b, %a, %p;\n\
             setp.eq.u32 %p, %kind, 2;\nmov.u64 %c, mine;\nadd.s64 %c, %c, %a;\ncvta.local.u64 %c, %c;\nselp.b64 %a, %c, %b, %p;",
        ),
    };
    let code = access.code.replace(".SPACE", space).replace("ADDRESS", address);
    format!(
        "{}.visible .entry k(.param .u64 table)\n{{\n.reg .b64 %a, %b, %c, %l, %m, %table;\n\
         .reg .b32 %o, %t, %x, %y, %z, %w, %kind, %active;\n.reg .b16 %h, %i;\n.reg .pred %p;\n\
         .shared .align 16 .b8 ours[{BYTES}];\n.local .align 16 .b8 mine[{BYTES}];\n\
         ld.param.u64 %table, [table];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 16;\nadd.s64 %table, %table, %a;\n\
         ld.global.u64 %a, [%table];\nld.global.u32 %kind, [%table+8];\nld.global.u32 %active, [%table+12];\n\
         mov.u64 %b, ours;\nmov.u64 %l, 3;\nmov.u64 %m, 4;\nmov.u32 %x, 5;\nmov.u32 %y, 6;\nmov.u32 %z, 7;\nmov.u32 %w, 8;\nmov.u16 %h, 9;\nmov.u16 %i, 10;\n\
         mov.u64 %c, mine;\nst.local.u32 [%c], %x;\n{make}\nsetp.eq.u32 %p, %active, 0;\n@%p bra OUT;\n{code}\nOUT:\nret;\n}}\n",
        crate::case::HEADER
    )
}

/// A lane's row of the table, with the fault that its address causes.
struct LaneRow {
    address: u64,
    kind: u32,
    /// Code of the expected fault, and the expected address in it if that is known.
    fault: Option<(u32, Option<u64>)>,
}

/// Draws the address of a lane, which is valid in most cases.
fn lane(random: &mut Random, access: &FaultyAccess, global: u64) -> LaneRow {
    let FaultyAccess { memory, size, .. } = *access;
    let kind = match memory {
        AddressKind::Generic => random.below(3) as u32,
        AddressKind::GenericShared => 1,
        _ => 0,
    };
    // Addresses of global memory count from the allocation, those of other state spaces from 0.
    let device = memory == AddressKind::Global || (memory == AddressKind::Generic && kind == 0);
    let base = if device { global } else { 0 };
    let good = size * random.below(BYTES / size);
    let (offset, code) = match random.below(12) {
        0 if size > 1 => (good + 1 + random.below(size - 1), Some(716)),
        1 => (BYTES + size * random.below(5), Some(700)),
        // Misaligned and out of bounds: the misalignment is reported.
        2 if size > 1 => (BYTES + size * random.below(5) + 1, Some(716)),
        3 if memory == AddressKind::SharedWide => ((1 << 32) + good, Some(700)),
        _ => (good, None),
    };
    let narrow = !matches!(memory, AddressKind::Generic | AddressKind::SharedWide);
    let named = (narrow || device).then_some(base + offset);
    LaneRow { address: base + offset, kind, fault: code.map(|code| (code, named)) }
}

/// Returns the address and the thread in a fault.
fn named(fault: &Fault) -> Option<(u64, u32)> {
    match fault {
        Fault::Illegal { address, site, .. }
        | Fault::Misaligned { address, site }
        | Fault::SharedOutOfBounds { address, site }
        | Fault::LocalOutOfBounds { address, site } => Some((*address, site.thread[0])),
        _ => None,
    }
}

fn launch(
    device: &Device,
    random: &mut Random,
    access: &FaultyAccess,
    [table, global]: [u64; 2],
) -> Result<(), String> {
    let mask = match random.below(4) {
        0 | 1 => u32::MAX,
        2 => random.bits() as u32,
        _ => random.bits() as u32 & random.bits() as u32 & random.bits() as u32,
    };
    // All lanes must execute a `.sync` instruction.
    let mask = if access.code.contains(".sync.") { u32::MAX } else { mask };
    let lanes: Vec<LaneRow> = (0..LANES).map(|_| lane(random, access, global)).collect();
    let mut rows = Vec::new();
    for (number, lane) in lanes.iter().enumerate() {
        rows.extend(lane.address.to_le_bytes());
        rows.extend(lane.kind.to_le_bytes());
        rows.extend((mask >> number & 1).to_le_bytes());
    }
    device.write(table, &rows);
    let counts = mask & access.named;
    let first =
        lanes.iter().enumerate().find(|(number, lane)| counts >> number & 1 != 0 && lane.fault.is_some());
    let got = device.try_launch("k", Shape::line(1, LANES as u32), &Params::new().u64(table))?;
    match (first.and_then(|(number, lane)| Some((number as u32, lane.fault?))), got) {
        (None, Ok(())) => Ok(()),
        (Some((number, (code, address))), Err(fault)) => {
            let (at, thread) = named(&fault).ok_or_else(|| format!("{fault:?}"))?;
            let same =
                fault.code() == code && thread == number && address.is_none_or(|address| address == at);
            let wanted = format!("should be {code} of lane {number} at {address:x?}, of the lanes {mask:#x}");
            if same { Ok(()) } else { Err(format!("{fault:?}, {wanted}")) }
        }
        (wanted, got) => Err(format!("{got:?}, should be {wanted:x?}, of the lanes {mask:#x}")),
    }
}

fn check(access: &FaultyAccess) -> Result<(), String> {
    let text = text(access);
    for &features in Features::available() {
        let mut device = Device::new(&text, features)?;
        let (table, global) = (device.allocate(16 * LANES), device.allocate(BYTES));
        let mut random = Random::new(access.size);
        for number in 0..LAUNCHES {
            launch(&device, &mut random, access, [table, global])
                .map_err(|error| format!("{features:?}, launch {number}: {error}\n{text}"))?;
        }
    }
    Ok(())
}

/// Tests two halves that are loaded as one word. They count as two loads, of which the first fails before the
/// second starts.
fn pairs() -> Result<(), String> {
    let text = format!(
        "{}.visible .entry k(.param .u64 table)\n{{\n.reg .b64 %a, %table;\n.reg .b32 %t, %x;\n.reg .b16 %h, %i;\n\
         ld.param.u64 %table, [table];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 8;\nadd.s64 %table, %table, %a;\n\
         ld.global.u64 %a, [%table];\nld.global.u16 %h, [%a];\nld.global.u16 %i, [%a+2];\nmov.b32 %x, {{%h, %i}};\n\
         st.global.u32 [%table], %x;\nret;\n}}\n",
        crate::case::HEADER
    );
    for &features in Features::available() {
        let mut device = Device::new(&text, features)?;
        let (table, memory) = (device.allocate(8 * LANES), device.allocate(BYTES));
        // The second half of lane 3 is beyond the allocation, and lane 20 is misaligned.
        let address = |lane: u64| {
            memory + [4 * lane, BYTES - 2, 1][usize::from(lane == 3) + 2 * usize::from(lane == 20)]
        };
        let rows: Vec<u8> = (0..LANES).flat_map(|lane| address(lane).to_le_bytes()).collect();
        device.write(table, &rows);
        let got = device.try_launch("k", Shape::line(1, LANES as u32), &Params::new().u64(table))?;
        let found = got.as_ref().err().and_then(named);
        if found != Some((memory + 1, 20)) {
            return Err(format!("{features:?}: {got:?}"));
        }
    }
    Ok(())
}

/// Returns the tests of this file.
pub fn trials() -> Vec<Trial> {
    let trial = |access: FaultyAccess| {
        let name = access.code.split(' ').next().unwrap_or_default().replace(".SPACE", "");
        let name = format!("lowest::{:?} {name}", access.memory);
        Trial::test(name, move || check(&access).map_err(Failed::from))
    };
    let mut trials: Vec<Trial> = accesses().into_iter().map(trial).collect();
    trials.push(Trial::test("lowest::pairs of halves", || pairs().map_err(Failed::from)));
    trials
}
