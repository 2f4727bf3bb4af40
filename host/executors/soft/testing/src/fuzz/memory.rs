//! Statements that access memory: loads of read-only data at any address, accesses to a thread's own part of
//! each state space, atomic operations, and copies.

use std::fmt::Write as _;

use crate::fuzz::case::{SUMS, TABLE};
use crate::fuzz::writer::{Mask, Scope, Writer};

/// Size in bytes of the constants and of the read-only variables of a module.
pub const CONSTANTS: u64 = 264;
/// Size in bytes of the block's sums in shared memory.
pub const SHARED_SUMS: u64 = 64;

/// Elements of loads and stores: their types, and their size in bytes.
const ELEMENTS: [(&[&str], u64); 4] = [
    (&["u8", "s8", "b8"], 1),
    (&["u16", "s16", "b16"], 2),
    (&["u32", "s32", "b32", "f32"], 4),
    (&["u64", "s64", "b64", "f64"], 8),
];

/// Operations of `red` that commute, with their type and their place among the sums.
const REDUCTIONS: [(&str, u64); 15] = [
    ("add.u32", 0),
    ("add.s32", 4),
    ("min.u32", 8),
    ("max.u32", 12),
    ("min.s32", 16),
    ("max.s32", 20),
    ("and.b32", 24),
    ("or.b32", 28),
    ("xor.b32", 32),
    ("add.u64", 40),
    ("max.u64", 48),
    ("min.s64", 56),
    ("or.b64", 64),
    ("xor.b64", 72),
    ("and.b64", 80),
];

/// Operations of `atom`, their type, the size of the operand, and the letter of its register.
const ATOMICS: [(&str, u64, char); 29] = [
    ("add.u32", 4, 'r'),
    ("add.s32", 4, 'r'),
    ("add.u64", 8, 'd'),
    ("add.f32", 4, 'r'),
    ("add.f64", 8, 'd'),
    ("add.noftz.f16", 2, 'h'),
    ("add.noftz.f16x2", 4, 'r'),
    ("add.noftz.bf16", 2, 'h'),
    ("add.noftz.bf16x2", 4, 'r'),
    ("and.b32", 4, 'r'),
    ("or.b32", 4, 'r'),
    ("xor.b32", 4, 'r'),
    ("and.b64", 8, 'd'),
    ("or.b64", 8, 'd'),
    ("xor.b64", 8, 'd'),
    ("exch.b32", 4, 'r'),
    ("exch.b64", 8, 'd'),
    ("cas.b16", 2, 'h'),
    ("cas.b32", 4, 'r'),
    ("cas.b64", 8, 'd'),
    ("inc.u32", 4, 'r'),
    ("dec.u32", 4, 'r'),
    ("min.u32", 4, 'r'),
    ("max.s32", 4, 'r'),
    ("min.s32", 4, 'r'),
    ("max.u32", 4, 'r'),
    ("min.u64", 8, 'd'),
    ("max.s64", 8, 'd'),
    ("min.s64", 8, 'd'),
];

/// An access: its type with a vector's width, its size in bytes, the class of its registers and their number.
pub(super) struct Access {
    suffix: String,
    pub(super) bytes: u64,
    class: char,
    count: usize,
}

impl Writer {
    /// Draws an access of at most `most` bytes.
    pub(super) fn access(&mut self, most: u64) -> Access {
        loop {
            let (types, size) = self.pick(&ELEMENTS);
            let count = self.pick(&[1, 1, 1, 2, 2, 4]);
            let bytes = size * count;
            if bytes > most.min(16) {
                continue;
            }
            let class = match size {
                1 => self.pick(&['h', 'r', 'r']),
                2 => self.pick(&['h', 'h', 'r']),
                4 if count == 1 && self.once_in(8) => 'd',
                4 => 'r',
                _ => 'd',
            };
            // Only integers are extended to wider registers.
            let ty = if class == 'd' && size == 4 { self.pick(&["u32", "s32"]) } else { self.pick(types) };
            if self.count(class) < count {
                continue;
            }
            let vector = ["", "", "v2.", "", "v4."][count as usize];
            return Access { suffix: format!("{vector}{ty}"), bytes, class, count: count as usize };
        }
    }

    /// Returns a load at an address.
    pub(super) fn load(&mut self, opcode: &str, access: &Access, address: &str) -> String {
        if access.count == 1 {
            let name = self.result(access.class);
            return format!("{opcode}.{} {name}, [{address}];\n", access.suffix);
        }
        let mut names = self.results(access.class, access.count);
        if self.once_in(12) {
            names[0] = "_".into();
        }
        format!("{opcode}.{} {{{}}}, [{address}];\n", access.suffix, names.join(", "))
    }

    /// Returns a store at an address.
    pub(super) fn store(&mut self, opcode: &str, access: &Access, address: &str) -> String {
        let names: Vec<String> = (0..access.count).map(|_| self.register(access.class)).collect();
        if access.count == 1 {
            return format!("{opcode}.{} [{address}], {};\n", access.suffix, names[0]);
        }
        format!("{opcode}.{} [{address}], {{{}}};\n", access.suffix, names.join(", "))
    }

    /// Draws an offset of an access within `bytes` bytes, often the last.
    fn offset(&mut self, access: &Access, bytes: u64) -> u64 {
        let places = (bytes / access.bytes).max(1);
        access.bytes * if self.once_in(3) { places - 1 } else { self.random.below(places) }
    }

    /// Draws a load of read-only data: the table, constants, variables or parameters.
    pub(super) fn lookup(&mut self) -> String {
        let access = self.access(16);
        // A cache policy changes no value, and any number is one.
        let hinted = self.once_in(8);
        let (base, bytes, mask, opcode) = match self.random.below(8) {
            0 => {
                let at = self.offset(&access, 64);
                return self.load("ld.param", &access, &format!("data+{at}"));
            }
            1 => ("constants", CONSTANTS, 0xf0, "ld.const"),
            2 => ("globals", CONSTANTS, 0xf0, "ld.global"),
            3 => ("%atable", TABLE, 0xff0, "ld"),
            _ => {
                let opcode = self.pick(&[
                    "ld.global",
                    "ld.global",
                    "ld.global.nc",
                    "ld.global.ca",
                    "ld.relaxed.gpu.global",
                    "ld.volatile.global",
                    "ld.acquire.gpu.global",
                    "ld.mmio.relaxed.sys.global",
                    "ld.global.cv",
                    "ldu.global",
                ]);
                let opcode = if hinted { "ld.global.L1::evict_last.L2::cache_hint" } else { opcode };
                ("%atable", TABLE, 0xff0, opcode)
            }
        };
        // Lanes read anywhere, consecutively upwards or downwards, or at one address.
        let index = match self.random.below(5) {
            0 | 1 => format!("and.b32 %t0, {}, {mask};\n", self.register('r')),
            2 => {
                let by = self.pick(&[1_u64, 2, 4, 8, 16]).max(access.bytes);
                let all = mask | (16 - access.bytes);
                let down =
                    if self.once_in(2) { format!("xor.b32 %t0, %t0, {all};\n") } else { String::new() };
                format!("mul.lo.u32 %t0, %tme, {by};\nand.b32 %t0, %t0, {all};\n{down}")
            }
            3 => format!("mov.u32 %t0, {};\n", 16 * self.random.below(mask / 16 + 1)),
            _ => format!("shr.u32 %t0, %tme, 1;\nshl.b32 %t0, %t0, 4;\nand.b32 %t0, %t0, {mask};\n"),
        };
        // Behind the highest index, the last bytes can be read.
        let after = bytes - mask - if index.starts_with("mul") { 16 } else { 0 };
        let at = self.offset(&access, after);
        let start = if base.starts_with('%') { String::new() } else { format!("mov.u64 %a2, {base};\n") };
        let base = if base.starts_with('%') { base } else { "%a2" };
        let mut load = self.load(opcode, &access, &format!("%a1+{at}"));
        if opcode.ends_with("cache_hint") {
            load = load.replace("];", &format!("], {};", self.register('d')));
        }
        format!("{index}{start}cvt.u64.u32 %a1, %t0;\nadd.s64 %a1, %a1, {base};\n{load}")
    }

    /// Draws a load or a store of the thread's own memory.
    pub(super) fn own(&mut self) -> String {
        let (space, base, bytes) = match self.random.below(8) {
            0 | 1 => (".global", "%aown", self.parts.own),
            2 => ("", "%aown", self.parts.own),
            3 | 4 => (".shared", "%tsown", self.shared),
            5 => ("", "%agshared", self.shared),
            6 => (".local", "%alown", self.local),
            _ => ("", "%aglocal", self.local),
        };
        if bytes == 0 {
            return self.arithmetic();
        }
        let access = self.access(bytes);
        let at = self.offset(&access, bytes);
        let (index, address) = if self.once_in(3) {
            self.indexed(base, &access, bytes)
        } else {
            (String::new(), format!("{base}+{at}"))
        };
        // Only accesses to global and shared memory can be ordered.
        let ordered = self.once_in(6) && !matches!(base, "%alown" | "%aglocal");
        if self.random.below(2) == 0 {
            let order = if ordered { self.pick(&[".volatile", ".relaxed.gpu", ".acquire.cta"]) } else { "" };
            index + &self.load(&format!("ld{order}{space}"), &access, &address)
        } else {
            let order = if ordered { self.pick(&[".volatile", ".relaxed.gpu", ".release.cta"]) } else { "" };
            index + &self.store(&format!("st{order}{space}"), &access, &address)
        }
    }

    /// Draws an address within a thread's part that depends on the lane, and the lines that compute it.
    fn indexed(&mut self, base: &str, access: &Access, bytes: u64) -> (String, String) {
        let (index, places) = (self.register('r'), bytes / access.bytes);
        let mut lines = format!("rem.u32 %t0, {index}, {places};\nmul.lo.u32 %t0, %t0, {};\n", access.bytes);
        if base.starts_with("%t") {
            let _ = writeln!(lines, "add.u32 %t1, %t0, {base};");
            (lines, "%t1".into())
        } else {
            let _ = writeln!(lines, "cvt.u64.u32 %a1, %t0;\nadd.s64 %a1, %a1, {base};");
            (lines, "%a1".into())
        }
    }

    /// Draws an atomic operation on the thread's own memory, or one on words that all threads change.
    pub(super) fn atomic(&mut self, scope: &Scope) -> String {
        if self.once_in(2) {
            let (operation, at) = self.pick(&REDUCTIONS);
            let value = self.register(if operation.ends_with("64") { 'd' } else { 'r' });
            // The block's sums are stored at the end, which all threads reach.
            let shared = !self.leaves && at < SHARED_SUMS && scope.mask != Mask::Unknown && self.once_in(2);
            let (space, base) = if shared { (".shared", "%tsums") } else { (".global", "%asums") };
            debug_assert!(at < SUMS, "the sums have room");
            let order = self.pick(&["", "", ".gpu", ".relaxed.sys", ".release.cluster"]);
            return format!("red{order}{space}.{operation} [{base}+{at}], {value};\n");
        }
        let (space, base, bytes) = match self.random.below(4) {
            0 => (".shared", "%tsown", self.shared),
            1 => ("", "%agshared", self.shared),
            2 => ("", "%aown", self.parts.own),
            _ => (".global", "%aown", self.parts.own),
        };
        let (operation, size, class) = self.pick(&ATOMICS);
        if bytes < size {
            return self.arithmetic();
        }
        let at = size * self.random.below(bytes / size);
        let (d, b) = (self.result(class), self.register(class));
        let c =
            if operation.starts_with("cas") { format!(", {}", self.register(class)) } else { String::new() };
        let order = self.pick(&["", "", ".sys", ".acquire.gpu", ".relaxed.cta", ".acq_rel.cluster"]);
        if space == ".global" && c.is_empty() && self.once_in(3) {
            let policy = self.register('d');
            return format!(
                "atom{order}{space}.L2::cache_hint.{operation} {d}, [{base}+{at}], {b}, {policy};\n"
            );
        }
        format!("atom{order}{space}.{operation} {d}, [{base}+{at}], {b}{c};\n")
    }

    /// Draws copies, fences, packed moves, arithmetic with carry, and special registers.
    pub(super) fn rare(&mut self) -> String {
        let (r, s, t) = (self.result('r'), self.register('r'), self.source('r'));
        let (d, e) = (self.result('d'), self.register('d'));
        match self.random.below(14) {
            12 if self.shared >= 8 => {
                // The own memory of the thread is an object in any state.
                let (at, p) = (8 * self.random.below(self.shared / 8), self.result('p'));
                let object = format!("[%tsown+{at}]");
                let init = if self.once_in(2) {
                    format!("mbarrier.init.shared.b64 {object}, {s};\n")
                } else {
                    String::new()
                };
                let change = match self.random.below(4) {
                    0 => format!("mbarrier.arrive.shared.b64 {d}, {object};\n"),
                    1 => format!("mbarrier.arrive.shared::cta.b64 {d}, {object}, {t};\n"),
                    2 => format!("mbarrier.arrive_drop.shared.b64 {d}, {object};\n"),
                    _ => format!(
                        "mbarrier.arrive.expect_tx.shared.b64 {d}, {object}, {t};\nmbarrier.complete_tx.shared.b64 {object}, {s};\n"
                    ),
                };
                format!(
                    "{init}{change}mbarrier.test_wait.shared.b64 {p}, {object}, {d};\nmbarrier.pending_count.b64 {r}, {d};\n"
                )
            }
            13 => format!("createpolicy.fractional.L2::evict_last.b64 {d}, 0.5;\n"),
            0 if self.shared >= 16 => {
                let bytes = self.pick(&[4_u64, 8, 16]);
                let level = if bytes == 16 { self.pick(&["ca", "cg"]) } else { "ca" };
                let to = bytes * self.random.below(self.shared / bytes);
                let size = if self.once_in(2) {
                    format!(", {}", self.random.below(bytes + 1))
                } else {
                    String::new()
                };
                format!(
                    "and.b32 %t0, {s}, 4080;\ncvt.u64.u32 %a1, %t0;\nadd.s64 %a1, %a1, %atable;\n\
                     cp.async.{level}.shared.global [%tsown+{to}], [%a1], {bytes}{size};\ncp.async.wait_all;\n"
                )
            }
            1 => {
                format!("{};\n", self.pick(&["membar.cta", "membar.gl", "fence.acq_rel.gpu", "fence.sc.cta"]))
            }
            2 => {
                let (space, base) =
                    self.pick(&[("shared", "%agshared"), ("local", "%aglocal"), ("global", "%aown")]);
                if (space == "shared" && self.shared == 0) || (space == "local" && self.local == 0) {
                    return self.arithmetic();
                }
                let (test, p) = (self.pick(&["shared", "local", "global"]), self.result('p'));
                format!("isspacep.{test} {p}, {base};\ncvta.to.{space}.u64 {d}, {base};\n")
            }
            3 => {
                let special = self.pick(&[
                    "laneid",
                    "warpid",
                    "tid.x",
                    "tid.y",
                    "tid.z",
                    "ntid.x",
                    "ntid.y",
                    "ctaid.x",
                    "nctaid.x",
                    "lanemask_eq",
                    "lanemask_le",
                    "lanemask_lt",
                    "lanemask_ge",
                    "lanemask_gt",
                    "dynamic_smem_size",
                ]);
                format!("mov.u32 {r}, %{special};\n")
            }
            4 => format!("mov.b64 {d}, {{{s}, {}}};\n", self.register('r')),
            5 => {
                let names = self.results('r', 2);
                format!("mov.b64 {{{}, {}}}, {e};\n", names[0], names[names.len() - 1])
            }
            6 => format!("mov.b32 {r}, {{{}, {}}};\n", self.register('h'), self.register('h')),
            7 => {
                let (names, u) = (self.results('h', 2), self.register('r'));
                format!(
                    "mov.b32 {{{}, _}}, {s};\nmov.b32 {{_, {}}}, {u};\n",
                    names[0],
                    names[names.len() - 1]
                )
            }
            8 => {
                let (u, v) = (self.result('r'), self.register('r'));
                let (first, then) = self.pick(&[("add", "addc"), ("sub", "subc")]);
                format!(
                    "{first}.cc.u32 {u}, {s}, {t};\n{then}.cc.u32 {r}, {v}, {s};\n{then}.u32 {u}, {u}, {v};\n"
                )
            }
            9 => format!("mad.lo.cc.u32 {r}, {s}, {t}, {s};\nmadc.hi.u32 {r}, {s}, {t}, {r};\n"),
            10 => format!("add.cc.u64 {d}, {e}, {d};\naddc.u64 {d}, {d}, {e};\n"),
            _ => "prefetch.global.L1 [%atable];\n".into(),
        }
    }
}
