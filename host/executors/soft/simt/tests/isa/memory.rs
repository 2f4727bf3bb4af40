//! Tests of loads and stores of each state space, type, vector size and qualifier, with several patterns of
//! addresses.

use std::fmt::Write as _;

use crate::access::{ElementAccess, MemoryKind, PATTERNS, THREADS, TYPES, kernel, name, operand, slot};
use crate::case::Case;
use crate::device::{Device, Params, Shape, same};
use crate::values::Random;

fn load(spelling: &str, place: MemoryKind) -> Case {
    let access = ElementAccess::new(spelling);
    let generic = access.space.is_empty();
    let bytes = place.elements() * access.width();
    let mut code = place.copy(bytes, true);
    let mut parts = Vec::new();
    for register in access.registers() {
        for index in 0..PATTERNS.len() {
            let (address, memory) = operand(&access, place, generic, index);
            // One thread of three uses the pattern with gaps.
            let skip = index == 1;
            let part = parts.len();
            if skip {
                let _ = write!(code, "rem.u32 %c, %t, 3;\nsetp.eq.u32 %p, %c, 0;\n@%p bra SKIP{part};\n");
            }
            let _ = writeln!(code, "{address}{spelling} {}, {memory};", access.operand(register));
            for element in 0..access.count {
                let slot = slot(&access, part, element);
                let _ = writeln!(code, "{slot}st.global.b{register} [%o], %x{register}_{element};");
            }
            if skip {
                let _ = writeln!(code, "SKIP{part}:");
            }
            parts.push((register, index));
        }
    }
    let mut text = kernel(&access, place, &code);
    if place == MemoryKind::Const {
        text = format!(".const .align 16 .b8 memory[{bytes}];\n{text}");
    }
    Case::new(&name(&access, place), spelling, &text, move |device| {
        let mut random = Random::new(access.width());
        let memory: Vec<u8> = (0..place.total() * access.width()).map(|_| random.bits() as u8).collect();
        let source = if place == MemoryKind::Const {
            let address = device.global("memory");
            device.write(address, &memory);
            address
        } else {
            device.upload(&memory)
        };
        let slots = parts.len() as u64 * THREADS * access.count;
        let results = device.allocate(8 * slots);
        device.launch("k", Shape::line(1, THREADS as u32), &Params::new().u64(source).u64(results))?;
        let mut wanted = Vec::new();
        for &(register, index) in &parts {
            for thread in 0..THREADS {
                let own = if place == MemoryKind::Local { thread * place.elements() } else { 0 };
                let at = (own + (PATTERNS[index].element)(thread, place.elements())) * access.width();
                let elements = memory[at as usize..][..access.width() as usize].chunks(access.bytes as usize);
                let skipped = index == 1 && thread % 3 == 0;
                wanted.extend(elements.map(|e| if skipped { 0 } else { access.extend(e, register) }));
            }
        }
        same("loaded", &device.read_longs(results, slots), &wanted)
    })
}

/// Indices of the address patterns for stores. Either each element is written at most once, or all threads
/// write the same value.
const STORES: [usize; 3] = [0, 1, 2];

fn store(spelling: &str, place: MemoryKind) -> Case {
    let access = ElementAccess::new(spelling);
    let generic = access.space.is_empty();
    let bytes = place.elements() * access.width();
    let mut text = String::new();
    let mut kernels = Vec::new();
    for register in access.registers() {
        for index in STORES {
            // Of several threads that store to one element, any may be the last. Their results share a slot.
            let shared_element = place != MemoryKind::Local && index == 2;
            let mut code = place.copy(bytes, true);
            for element in 0..access.count {
                let slot = slot(&access, 0, element);
                let slot = if shared_element { slot.replace("%t, 0", "0, 0") } else { slot };
                let _ = writeln!(code, "{slot}ld.global.b{register} %x{register}_{element}, [%o];");
            }
            let (address, memory) = operand(&access, place, generic, index);
            let _ = writeln!(
                code,
                "rem.u32 %c, %t, 3;\nsetp.eq.u32 %p, %c, 2;\n@%p bra SKIP;\n{address}{spelling} {memory}, {};\nSKIP:",
                access.operand(register)
            );
            code += &place.copy(bytes, false);
            let entry = format!("k{register}_{index}");
            text += &kernel(&access, place, &code).replace("entry k(", &format!("entry {entry}("));
            kernels.push((entry, register, index));
        }
    }
    Case::new(&name(&access, place), spelling, &text, move |device| {
        let (width, size) = (access.width() as usize, access.bytes as usize);
        let mut random = Random::new(access.width() + 1);
        let before: Vec<u8> = (0..place.total() as usize * width).map(|_| random.bits() as u8).collect();
        let values: Vec<u64> = (0..THREADS * access.count).map(|_| random.bits()).collect();
        let source = device.upload(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        for (entry, _, index) in &kernels {
            let target = device.upload(&before);
            let params = Params::new().u64(target).u64(source);
            device.launch(entry, Shape::line(1, THREADS as u32), &params)?;
            let mut wanted = before.clone();
            for thread in (0..THREADS).filter(|thread| thread % 3 != 2) {
                let own = if place == MemoryKind::Local { thread * place.elements() } else { 0 };
                let at = (own + (PATTERNS[*index].element)(thread, place.elements())) as usize * width;
                let from = if place != MemoryKind::Local && *index == 2 { 0 } else { thread };
                for element in 0..access.count as usize {
                    let value = values[from as usize * access.count as usize + element].to_le_bytes();
                    wanted[at + element * size..][..size].copy_from_slice(&value[..size]);
                }
            }
            same(entry, &device.read(target, wanted.len() as u64), &wanted)?;
        }
        Ok(())
    })
}

/// Returns a test of loads of parameters, whose addresses are known when the kernel is generated.
fn load_param(spelling: &str) -> Case {
    let access = ElementAccess::new(spelling);
    let width = access.width();
    let (mut code, mut slots) = (String::new(), 0);
    let mut registers = String::new();
    for (bits, ty) in [(16, "b16"), (32, "b32"), (64, "b64")] {
        for index in 0..4 {
            let _ = writeln!(registers, ".reg .{ty} %x{bits}_{index};");
        }
    }
    let mut places = Vec::new();
    for register in access.registers() {
        for at in [0, width, 3 * width] {
            let offset = if at == 0 { String::new() } else { format!("+{at}") };
            let _ = writeln!(code, "{spelling} {}, [data{offset}];", access.operand(register));
            for element in 0..access.count {
                let _ = writeln!(code, "st.global.b{register} [%out+{}], %x{register}_{element};", 8 * slots);
                places.push((register, at + element * access.bytes));
                slots += 1;
            }
        }
    }
    let text = format!(
        ".visible .entry k(.param .u8 small, .param .align 16 .b8 data[64], .param .u64 out)\n{{\n.reg .b64 %out;\n{registers}\
         ld.param.u64 %out, [out];\n{code}ret;\n}}\n"
    );
    Case::new(spelling, spelling, &text, move |device| {
        let results = device.allocate(8 * slots);
        let mut params = Params::new().u8(7);
        let data: Vec<u8> = (0..64).map(|index| (index * 37 + 131) as u8).collect();
        // The address is aligned to 16 bytes, as the parameter is declared.
        for _ in 1..16 {
            params = params.u8(0);
        }
        for &byte in &data {
            params = params.u8(byte);
        }
        device.launch("k", Shape::line(1, 1), &params.u64(results))?;
        let wanted: Vec<u64> = places
            .iter()
            .map(|&(register, at)| access.extend(&data[at as usize..][..access.bytes as usize], register))
            .collect();
        same("loaded", &device.read_longs(results, slots), &wanted)
    })
}

/// Iterates over the spellings `head.type`, with all vectors that fit into 16 bytes.
fn spellings(head: &str) -> impl Iterator<Item = String> {
    let head = head.to_owned();
    TYPES.into_iter().flat_map(move |(ty, bytes)| {
        let vectors =
            [("", 1), (".v2", 2), (".v4", 4)].into_iter().filter(move |(_, count)| bytes * count <= 16);
        let head = head.clone();
        vectors.map(move |(vector, _)| format!("{head}{vector}.{ty}"))
    })
}

/// Spellings with qualifiers of caches and memory order, which have no effect on memory that only one thread
/// accesses.
const QUALIFIED: &[(&str, MemoryKind)] = &[
    ("ld.volatile.global.u32", MemoryKind::Global),
    ("ld.volatile.global.v2.f32", MemoryKind::Global),
    ("ld.volatile.shared.u32", MemoryKind::Shared),
    ("ld.volatile.shared.u64", MemoryKind::Shared),
    ("ld.volatile.local.u32", MemoryKind::Local),
    ("ld.volatile.u32", MemoryKind::Global),
    ("ld.volatile.u32", MemoryKind::Shared),
    ("ld.cg.v2.u32", MemoryKind::Global),
    ("ld.cg.v2.u64", MemoryKind::Global),
    ("ld.global.ca.u32", MemoryKind::Global),
    ("ld.global.cg.f32", MemoryKind::Global),
    ("ld.global.cs.u64", MemoryKind::Global),
    ("ld.global.cv.u32", MemoryKind::Global),
    ("ld.weak.global.u32", MemoryKind::Global),
    ("ldu.global.u32", MemoryKind::Global),
    ("ldu.global.v4.f32", MemoryKind::Global),
    ("ld.relaxed.gpu.global.u32", MemoryKind::Global),
    ("ld.relaxed.gpu.v2.u32", MemoryKind::Global),
    ("ld.relaxed.gpu.v2.u64", MemoryKind::Global),
    ("ld.relaxed.cta.shared.u32", MemoryKind::Shared),
    ("ld.relaxed.sys.global.u64", MemoryKind::Global),
    ("ld.acquire.gpu.u32", MemoryKind::Global),
    ("ld.acquire.gpu.global.u32", MemoryKind::Global),
    ("ld.acquire.cta.shared.u32", MemoryKind::Shared),
    ("st.volatile.global.u32", MemoryKind::Global),
    ("st.volatile.shared.u32", MemoryKind::Shared),
    ("st.volatile.u32", MemoryKind::Global),
    ("st.cg.v2.u32", MemoryKind::Global),
    ("st.cg.v2.u64", MemoryKind::Global),
    ("st.global.wb.u32", MemoryKind::Global),
    ("st.global.cs.v4.f32", MemoryKind::Global),
    ("st.global.wt.u32", MemoryKind::Global),
    ("st.weak.global.u32", MemoryKind::Global),
    ("st.relaxed.gpu.global.u32", MemoryKind::Global),
    ("st.relaxed.gpu.v2.u32", MemoryKind::Global),
    ("st.relaxed.gpu.v2.u64", MemoryKind::Global),
    ("st.release.gpu.u32", MemoryKind::Global),
    ("st.release.gpu.global.u32", MemoryKind::Global),
    ("st.release.cta.shared.u32", MemoryKind::Shared),
];

/// Returns a test in which all threads store to one address, so that any one of the stores may be the last.
fn conflict() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %out;\n.reg .b32 %t;\n\
        .shared .align 4 .b8 memory[4];\n\
        ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nadd.u32 %t, %t, 100;\n\
        st.global.u32 [%out], %t;\nst.shared.u32 [memory], %t;\nbar.sync 0;\nld.shared.u32 %t, [memory];\n\
        st.global.u32 [%out+4], %t;\nret;\n}\n";
    Case::new("stores to one address", "", text, |device: &mut Device| {
        let got = device.words(Shape::line(1, 64), Params::new(), 2)?;
        if got.iter().all(|value| (100..164).contains(value)) {
            Ok(())
        } else {
            Err(format!("no thread has stored {got:?}"))
        }
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    for place in [MemoryKind::Global, MemoryKind::Shared, MemoryKind::Local] {
        let space = place.space();
        cases.extend(spellings(&format!("ld.{space}")).map(|spelling| load(&spelling, place)));
        cases.extend(spellings(&format!("st.{space}")).map(|spelling| store(&spelling, place)));
        cases.extend(spellings("ld").map(|spelling| load(&spelling, place)));
        cases.extend(spellings("st").map(|spelling| store(&spelling, place)));
    }
    cases.extend(spellings("ld.global.nc").map(|spelling| load(&spelling, MemoryKind::Global)));
    cases.extend(spellings("ld.const").map(|spelling| load(&spelling, MemoryKind::Const)));
    cases.extend(spellings("ld.param").map(|spelling| load_param(&spelling)));
    for &(spelling, place) in QUALIFIED {
        cases.push(if spelling.starts_with("ld") { load(spelling, place) } else { store(spelling, place) });
    }
    cases.push(conflict());
}
