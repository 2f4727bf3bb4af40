//! Lowers the read-modify-write instructions `atom` and `red`.

use vgpu_ptx::ir::{Atomic as Rmw, Base, Binary, Class, Float, Mem, Operand, Reg, Round, Ty, mbarrier};

use crate::machine::{AtomicFn, AtomicOperands, Opcode, ValueLoc};
use crate::ops::rounding::{self, F32, FloatFormat};
use crate::ops::{convert, double};

use super::builder::Builder;
use super::error::Lowered;
use super::places::class_bytes;

impl Builder<'_> {
    /// Lowers `atom` if there is a destination, and `red` otherwise.
    pub(super) fn atomic(
        &mut self,
        op: Rmw,
        mem: &Mem,
        float: Float,
        dst: Option<Reg>,
        b: &Operand,
        c: Option<&Operand>,
    ) -> Lowered {
        let bytes = mem.ty.bytes();
        let change = change(op, mem.ty, float)?;
        let base = match mem.base {
            Base::Reg(reg) => {
                let place = self.place(reg)?;
                match self.class(reg)? {
                    Class::B64 => place,
                    Class::B32 => self.apply(Opcode::Widen, [place])?,
                    class => return Err(format!("an address in a register of {} bytes", class_bytes(class))),
                }
            }
            base => {
                let address = self.address(base)?;
                ValueLoc::Scalar(self.constant(address))
            }
        };
        let base = self.vector(base, true);
        let b = self.source(b, bytes)?;
        let b = self.vector(b, bytes == 8);
        let c = match c {
            Some(c) => {
                let c = self.source(c, bytes)?;
                self.vector(c, bytes == 8)
            }
            None => b,
        };
        let dst = match dst {
            Some(dst) => match self.register(dst, bytes)? {
                ValueLoc::Vector(slot) => Some(slot),
                ValueLoc::Scalar(_) => {
                    return Err("lanes get values of their own from a read-modify-write".into());
                }
            },
            None => None,
        };
        let window = self.window();
        self.tables.atomics.push(AtomicOperands {
            change,
            space: mem.space,
            bytes,
            base,
            offset: mem.offset,
            b,
            c,
            dst,
            window,
        });
        let mut inst = self.inst(Opcode::Atomic);
        inst.x = self.tables.atomics.len() as u32 - 1;
        self.push(inst);
        Ok(())
    }
}

/// Returns the function that computes the new value of each element in memory, or fails if the ISA has no
/// such operation of this type.
fn change(op: Rmw, ty: Ty, float: Float) -> Lowered<AtomicFn> {
    let bytes = ty.bytes();
    let missing = Err(format!("there is no {op:?} of {ty:?} in memory"));
    let half = bytes == 2 && matches!(ty, Ty::F16 | Ty::Bf16 | Ty::B16 | Ty::U16);
    if !(matches!(bytes, 4 | 8) || half) {
        return missing;
    }
    Ok(match (op, ty) {
        (Rmw::Exch, _) => Box::new(|_, b, _, _| b),
        (Rmw::Arrive, _) => Box::new(|old, b, c, _| mbarrier::arrive(old, b, c)),
        (Rmw::Cas, _) => Box::new(|old, b, c, _| if old == b { c } else { old }),
        (Rmw::Add, Ty::F32) => Box::new(move |old, b, _, own| {
            // If the instruction does not state it, sums in device memory flush subnormals, and those in
            // shared memory do not.
            let flush = |bits: u64| if own && !float.ftz { bits as u32 } else { F32.flush(bits as u32) };
            let (a, b) = (F32.decode(flush(old)), F32.decode(flush(b)));
            let sum = F32.encode(rounding::add(a, b, false), float.round);
            flush(sum.into()).into()
        }),
        (Rmw::Add, Ty::F64) => Box::new(move |old, b, _, _| double::binary(Binary::Add, old, b, float.round)),
        (_, Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2) if matches!(op, Rmw::Add | Rmw::Min | Rmw::Max) => {
            let format = convert::format(ty).ok_or("not a short format")?;
            let pair = matches!(ty, Ty::F16x2 | Ty::Bf16x2);
            Box::new(move |old, b, _, _| {
                let low = short(op, format, old & 0xffff, b & 0xffff);
                if pair { short(op, format, old >> 16 & 0xffff, b >> 16 & 0xffff) << 16 | low } else { low }
            })
        }
        _ if ty.float() => return missing,
        (Rmw::And, _) => Box::new(|old, b, _, _| old & b),
        (Rmw::Or, _) => Box::new(|old, b, _, _| old | b),
        (Rmw::Xor, _) => Box::new(|old, b, _, _| old ^ b),
        (Rmw::Add, _) => Box::new(|old, b, _, _| old.wrapping_add(b)),
        (Rmw::Inc, _) => Box::new(|old, b, _, _| if old >= b { 0 } else { old + 1 }),
        (Rmw::Dec, _) => Box::new(|old, b, _, _| if old == 0 || old > b { b } else { old - 1 }),
        (Rmw::Min | Rmw::Max, _) => {
            let unused = 64 - 8 * bytes;
            let (signed, least) = (ty.signed(), op == Rmw::Min);
            Box::new(move |old, b, _, _| {
                let less = if signed {
                    (old << unused).cast_signed() < (b << unused).cast_signed()
                } else {
                    old < b
                };
                if less == least { old } else { b }
            })
        }
    })
}

/// Applies an operation to the 16-bit floating-point number `old` and returns the new bits.
fn short(op: Rmw, format: FloatFormat, old: u64, b: u64) -> u64 {
    let (x, y) = (format.decode(old as u32), format.decode(b as u32));
    match op {
        Rmw::Add => format.encode(rounding::add(x, y, false), Round::Nearest).into(),
        Rmw::Min if x.is_nan() || y < x => b,
        Rmw::Max if x.is_nan() || y > x => b,
        _ => old,
    }
}
