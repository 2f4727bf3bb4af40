//! Memory accesses parsed from their spellings, patterns of addresses for them, and kernels that perform
//! them.

use std::fmt::Write as _;

/// Number of threads in the block. The second warp is not full.
pub const THREADS: u64 = 40;

/// A load or store, parsed from its spelling.
#[derive(Clone, Debug)]
pub struct ElementAccess {
    pub spelling: String,
    /// Name of the state space, empty for a generic access.
    pub space: &'static str,
    ty: &'static str,
    /// Size of an element in bytes.
    pub bytes: u64,
    /// Number of elements of the access.
    pub count: u64,
}

const SPACES: [&str; 5] = ["global", "shared", "local", "param", "const"];
pub const TYPES: [(&str, u64); 14] = [
    ("b8", 1),
    ("u8", 1),
    ("s8", 1),
    ("b16", 2),
    ("u16", 2),
    ("s16", 2),
    ("b32", 4),
    ("u32", 4),
    ("s32", 4),
    ("f32", 4),
    ("b64", 8),
    ("u64", 8),
    ("s64", 8),
    ("f64", 8),
];

impl ElementAccess {
    pub fn new(spelling: &str) -> Self {
        let has = |part: &&str| spelling.split('.').any(|other| other == *part);
        let space = SPACES.iter().find(|space| has(space)).copied().unwrap_or_default();
        let (ty, bytes) = *TYPES.iter().find(|(name, _)| has(name)).expect("a type");
        let count = if has(&"v2") {
            2
        } else if has(&"v4") {
            4
        } else {
            1
        };
        Self { spelling: spelling.into(), space, ty, bytes, count }
    }

    /// Returns the size of all elements in bytes.
    pub const fn width(&self) -> u64 {
        self.bytes * self.count
    }

    /// Returns the widths in bits of registers that may hold the elements: their own width, and wider ones
    /// for integers.
    pub fn registers(&self) -> Vec<u64> {
        let least = (8 * self.bytes).max(16);
        let widest = if self.ty.starts_with(['u', 's']) { 64 } else { least };
        [16, 32, 64].into_iter().filter(|&bits| (least..=widest).contains(&bits)).collect()
    }

    /// Returns the value of a loaded element in a register of `register` bits.
    pub fn extend(&self, element: &[u8], register: u64) -> u64 {
        let mut bytes = [0; 8];
        bytes[..element.len()].copy_from_slice(element);
        let unused = 64 - 8 * self.bytes;
        let value = u64::from_le_bytes(bytes) << unused;
        let value = if self.ty.starts_with('s') { (value as i64 >> unused) as u64 } else { value >> unused };
        value & (u64::MAX >> (64 - register))
    }

    /// Returns the registers of the elements as an operand, such as `x` or `{x0, x1}`.
    pub fn operand(&self, register: u64) -> String {
        let names: Vec<String> = (0..self.count).map(|index| format!("%x{register}_{index}")).collect();
        if self.count == 1 { names[0].clone() } else { format!("{{{}}}", names.join(", ")) }
    }
}

/// A pattern of addresses, which determines the element, out of `n`, that each thread accesses.
pub struct Pattern {
    /// PTX statements that compute the index of the element in `%e`.
    code: &'static str,
    /// Offset in elements that is added to the address.
    offset: i64,
    /// Function that computes the index of the element from the thread's index and from `n`.
    pub element: fn(u64, u64) -> u64,
}

/// Address patterns of the tests. `%t` is the thread's index, `%m` the number of elements minus one, and `%h`
/// half of that.
pub const PATTERNS: [Pattern; 5] = [
    Pattern { code: "and.b32 %e, %t, %m;", offset: 0, element: |t, n| t % n },
    Pattern {
        code: "mad.lo.u32 %e, %t, 5, 3; and.b32 %e, %e, %m;",
        offset: 0,
        element: |t, n| (5 * t + 3) % n,
    },
    Pattern { code: "mov.u32 %e, 2;", offset: 0, element: |_, _| 2 },
    Pattern { code: "and.b32 %e, %t, %h;", offset: 8, element: |t, n| t % (n / 2) + 8 },
    Pattern {
        code: "sub.u32 %e, %m, %t; and.b32 %e, %e, %h; add.u32 %e, %e, 8;",
        offset: -8,
        element: |t, n| (n - 1 - t % n) % (n / 2),
    },
];

/// Memory that holds the elements, accessed by its state space or by generic addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    Global,
    Shared,
    Local,
    Const,
}

impl MemoryKind {
    /// Returns the number of elements. In local memory, each thread has that number.
    pub const fn elements(self) -> u64 {
        if matches!(self, Self::Local) { 16 } else { 64 }
    }

    /// Returns the total number of elements of all threads.
    pub const fn total(self) -> u64 {
        if matches!(self, Self::Local) { 16 * THREADS } else { 64 }
    }

    pub const fn space(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Shared => "shared",
            Self::Local => "local",
            Self::Const => "const",
        }
    }

    /// Returns PTX statements that compute the address of the first element in `%base`, as a generic address
    /// if `generic`.
    fn base(self, generic: bool) -> String {
        let cvta = match (self, generic) {
            (Self::Global, _) => return "mov.u64 %base, %mem;\n".into(),
            (_, false) => String::new(),
            (_, true) => format!("cvta.{}.u64 %base, %base;\n", self.space()),
        };
        format!("mov.u64 %base, memory;\n{cvta}")
    }

    /// Returns a declaration of the variable `memory` with `bytes` bytes.
    fn declaration(self, bytes: u64) -> String {
        match self {
            Self::Shared | Self::Local => format!(".{} .align 16 .b8 memory[{bytes}];\n", self.space()),
            Self::Global | Self::Const => String::new(),
        }
    }

    /// Returns PTX that copies words between this memory and device memory at `%mem`. Each thread copies its
    /// part.
    pub fn copy(self, bytes: u64, load: bool) -> String {
        if matches!(self, Self::Global | Self::Const) {
            return String::new();
        }
        let words = bytes / 4;
        let (first, step, own) = if self == Self::Local { ("0", 1, words) } else { ("%t", THREADS, 0) };
        let name = if load { "FILL" } else { "DRAIN" };
        let space = self.space();
        let (from, to) = if load {
            ("global.b32 %x32_0, [%a]".to_owned(), format!("{space}.b32 [%o], %x32_0"))
        } else {
            (format!("{space}.b32 %x32_0, [%o]"), "global.b32 [%a], %x32_0".to_owned())
        };
        format!(
            "bar.sync 0;\nmov.u32 %c, {first};\n{name}:\nsetp.ge.u32 %p, %c, {words};\n@%p bra {name}_DONE;\n\
             mad.lo.u32 %e, %t, {own}, %c;\nmul.wide.u32 %a, %e, 4;\nadd.u64 %a, %a, %mem;\n\
             mul.wide.u32 %o, %c, 4;\nmov.u64 %s, memory;\nadd.u64 %o, %o, %s;\n\
             ld.{from};\nst.{to};\nadd.u32 %c, %c, {step};\nbra {name};\n{name}_DONE:\nbar.sync 0;\n"
        )
    }
}

/// Returns a kernel that contains `code`. The memory under test is at `%mem`, and other values are at `%io`.
pub fn kernel(access: &ElementAccess, place: MemoryKind, code: &str) -> String {
    let bytes = place.elements() * access.width();
    let mut registers = String::new();
    for (bits, ty) in [(16, "b16"), (32, "b32"), (64, "b64")] {
        for index in 0..4 {
            let _ = writeln!(registers, ".reg .{ty} %x{bits}_{index};");
        }
    }
    let mask = place.elements() - 1;
    format!(
        ".visible .entry k(.param .u64 mem, .param .u64 io)\n{{\n\
         .reg .b64 %mem, %io, %base, %a, %o, %s;\n.reg .b32 %t, %e, %c, %m, %h, %b;\n.reg .pred %p;\n{registers}{}\
         ld.param.u64 %mem, [mem];\nld.param.u64 %io, [io];\nmov.u32 %t, %tid.x;\nmov.u32 %m, {mask};\nmov.u32 %h, {};\n\
         {code}ret;\n}}\n",
        place.declaration(bytes),
        mask / 2,
    )
}

/// Returns the PTX statements that compute the address of the element that pattern `index` selects for this
/// thread, and the memory operand with that address. Addresses have 32 bits in shared memory, unless they are
/// generic or the pattern is number 1, and otherwise 64 bits.
pub fn operand(access: &ElementAccess, place: MemoryKind, generic: bool, index: usize) -> (String, String) {
    let pattern = &PATTERNS[index];
    let width = access.width();
    let offset = match pattern.offset * width as i64 {
        0 => String::new(),
        offset => format!("{offset:+}"),
    };
    if place == MemoryKind::Shared && !generic && index != 1 {
        let code = format!("{}\nmov.u32 %b, memory;\nmad.lo.u32 %e, %e, {width}, %b;\n", pattern.code);
        return (code, format!("[%e{offset}]"));
    }
    let base = place.base(generic);
    let code = format!("{}\n{base}mul.wide.u32 %a, %e, {width};\nadd.u64 %a, %a, %base;\n", pattern.code);
    (code, format!("[%a{offset}]"))
}

/// Returns PTX that computes in `%o` the address of the 8-byte slot of an element of this thread, in part
/// `part` of `%io`.
pub fn slot(access: &ElementAccess, part: usize, index: u64) -> String {
    let count = access.count;
    let first = part as u64 * THREADS;
    format!(
        "add.u32 %c, %t, {first};\nmad.lo.u32 %c, %c, {count}, {index};\nmul.wide.u32 %o, %c, 8;\nadd.u64 %o, %o, %io;\n"
    )
}

pub fn name(access: &ElementAccess, place: MemoryKind) -> String {
    if access.space.is_empty() {
        format!("{} of {place:?}", access.spelling)
    } else {
        access.spelling.clone()
    }
}
