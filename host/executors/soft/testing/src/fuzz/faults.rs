//! Statements that fail: accesses outside of memory or at misaligned addresses, traps, and recursion without
//! end.

use std::fmt::Write as _;

use crate::fuzz::case::TABLE;
use crate::fuzz::memory::Access;
use crate::fuzz::writer::Writer;

impl Writer {
    /// Draws an instruction that fails for some lanes of one warp, while the others access their own memory.
    pub(super) fn failing(&mut self) -> String {
        let Some((warp, block)) = self.fault.take() else { return String::new() };
        let mut text =
            format!("setp.eq.u32 %q1, %twarp, {warp};\nsetp.eq.and.u32 %q1, %tblock, {block}, %q1;\n");
        match self.random.below(3) {
            0 => {
                let _ = writeln!(text, "setp.ge.and.u32 %q1, %tlane, {}, %q1;", self.random.below(33));
            }
            1 => {
                let _ = writeln!(text, "and.pred %q1, %q1, {};", self.register('p'));
            }
            _ => {}
        }
        let store = self.once_in(2);
        let step = self.pick(&[0, 1, 4, 8, 16]);
        match self.random.below(9) {
            0 => return text + "@%q1 trap;\n",
            1 if !self.functions.is_empty() => {
                // A recursion without end.
                return text + "selp.b32 %t0, 1000000, 1, %q1;\n" + &self.call_function("%t0");
            }
            2..=4 => {
                let access = self.access(self.parts.own);
                let far = self.pick(&[TABLE, TABLE + access.bytes, TABLE + 4096, 1 << 33]).to_string();
                // A load can also begin inside of the allocation and end outside.
                let near = (TABLE - access.bytes / 2).to_string();
                let (from, step) = match self.random.below(4) {
                    0 if !store => (near, step),
                    // With a step, later lanes would store to the table, which all threads read.
                    1 => (format!("-{}", access.bytes), 0),
                    _ => (far, step),
                };
                let _ = write!(
                    text,
                    "mul.wide.u32 %a1, %tlane, {step};\nadd.s64 %a1, %a1, %atable;\nadd.s64 %a1, %a1, {from};\n\
                     selp.b64 %a1, %a1, %aown, %q1;\n"
                );
                let space = self.pick(&["", ".global"]);
                return text + &self.either(store, space, &access, "%a1");
            }
            5 | 6 if self.shared > 0 => {
                let access = self.access(self.shared);
                let _ = write!(
                    text,
                    "mov.u32 %t1, %total_smem_size;\nmad.lo.u32 %t1, %tlane, {step}, %t1;\nadd.u32 %t1, %t1, {};\n\
                     selp.b32 %t1, %t1, %tsown, %q1;\n",
                    self.pick(&[0, 1 << 20])
                );
                return text + &self.either(store, ".shared", &access, "%t1");
            }
            7 => {
                let access = self.access(self.parts.own);
                // No device memory is at these addresses: null, windows of other spaces, functions.
                let at = self.pick(&["0", "64", "0x10000100000", "0x20000100000", "0x40000000010"]);
                let _ = writeln!(text, "selp.b64 %a1, {at}, %aown, %q1;");
                return text + &self.either(store, "", &access, "%a1");
            }
            _ => {}
        }
        // A misaligned address.
        let access = self.access(self.parts.own);
        if access.bytes == 1 {
            return text + "@%q1 trap;\n";
        }
        let _ = write!(text, "add.s64 %a1, %aown, 1;\nselp.b64 %a1, %a1, %aown, %q1;\n");
        text + &self.either(store, ".global", &access, "%a1")
    }

    /// Returns a store or a load at an address.
    fn either(&mut self, store: bool, space: &str, access: &Access, address: &str) -> String {
        if store {
            self.store(&format!("st{space}"), access, address)
        } else {
            self.load(&format!("ld{space}"), access, address)
        }
    }
}
