//! Loads, stores, read-modify-writes, and what else reaches outside of the warp.

use vgpu_ptx::ir::{Atomic as Rmw, Base, Class, Float, Mem, Op, Operand, Order, Reg, Space, Ty, window};

use crate::machine::{Slot, Step};
use crate::ops::atomic::{Atomic, AtomicStep, Change};
use crate::ops::memory::{
    self, Extend, FromU8, FromU16, Generic, Global, Load, LoadPair, LoadScalar, Local, Same32, Same64,
    Shared, Store, Truncate,
};
use crate::ops::rounding::{self, F32, Format};
use crate::ops::{Place, convert, double, integer, special, warps};
use crate::printf::{Print, PrintStep};
use crate::program::Special;

use super::builder::{Builder, Lowered, class_bytes};

/// Where an access goes: its base, and what is added.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub(super) base: Place,
    pub(super) offset: u64,
}

impl Builder<'_> {
    /// Addresses of a memory operand: 64 bits of device and generic memory, 32 of others.
    pub(super) fn access(&mut self, mem: &Mem) -> Lowered<Address> {
        let wide = matches!(mem.space, Space::Global | Space::Generic | Space::Param);
        let Base::Reg(reg) = mem.base else {
            let address = self.address(mem.base)?.wrapping_add_signed(mem.offset);
            let address =
                if mem.space == Space::Param { address.wrapping_add(window::PARAM) } else { address };
            let address = if wide { address } else { u64::from(u32::try_from(address).unwrap_or(u32::MAX)) };
            return Ok(Address { base: Place::Scalar(self.constant(address)), offset: 0 });
        };
        let mut offset = mem.offset.cast_unsigned();
        if mem.space == Space::Param {
            // Through their window: parameters are rarely accessed by address.
            offset = offset.wrapping_add(window::PARAM);
        }
        let place = self.place(reg)?;
        match (self.class(reg)?, wide) {
            (Class::B64, true) | (Class::B32, false) => Ok(Address { base: place, offset }),
            (Class::B32, true) => Ok(Address { base: self.apply1::<convert::Widen>(place)?, offset }),
            (Class::B64, false) => {
                let by = Place::Scalar(self.constant(offset));
                let sum = if offset == 0 { place } else { self.apply2::<integer::Add64>(place, by)? };
                Ok(Address { base: self.apply1::<convert::NarrowAddress>(sum)?, offset: 0 })
            }
            (class, _) => Err(format!("an address in a register of {} bytes", class_bytes(class))),
        }
    }

    pub(super) fn window(&mut self) -> u32 {
        self.windows += 1;
        self.windows - 1
    }

    fn fence(&mut self) {
        let step = self.common::<special::Fence>();
        self.push(step);
    }

    /// `ld`
    pub(super) fn load(&mut self, mem: &Mem, dst: &[Option<Reg>]) -> Lowered {
        if mem.space == Space::Param
            && let (Base::Zero, [Some(dst)]) = (mem.base, dst)
        {
            return self.load_parameter(mem, *dst);
        }
        if !matches!(dst.len(), 1 | 2 | 4) {
            return Err(format!("a vector of {} elements", dst.len()));
        }
        let address = self.access(mem)?;
        let wide = mem.ty.bytes() == 8;
        // Where each element goes first, and whether it must go on from there.
        let mut places = Vec::with_capacity(dst.len());
        for reg in dst {
            places.push(match reg {
                Some(reg) => Some((*reg, self.place(*reg)?, self.class(*reg)?)),
                None => None,
            });
        }
        for (_, _, class) in places.iter().flatten() {
            let bytes = class_bytes(*class);
            if bytes < mem.ty.bytes() || *class == Class::Pred {
                return Err(format!("a register of {bytes} bytes for a {:?}", mem.ty));
            }
        }
        let lanes_share =
            address.base.is_scalar() && matches!(mem.space, Space::Global | Space::Shared | Space::Param);
        let scalar = lanes_share && mem.space != Space::Param;
        let direct = |place: Place, class: Class| {
            // Elements arrive in 32 or 64 bits, zero above: those with a sign are extended later.
            let same = if class == Class::B64 { wide } else { !wide };
            let signed = mem.ty.signed() && mem.ty.bytes() < class_bytes(class);
            same && !signed && place.is_scalar() == scalar
        };
        let mut slots = Vec::with_capacity(4);
        let mut later = Vec::new();
        let mut blend = false;
        for place in &places {
            slots.push(match *place {
                Some((reg, place, class)) if direct(place, class) => {
                    blend |= self.blends(reg);
                    place.slot()
                }
                other => {
                    let slot = if scalar { self.temporary_scalar() } else { self.temporary_vector(wide) };
                    if let Some((reg, place, class)) = other {
                        later.push((slot, reg, place, class));
                    }
                    slot
                }
            });
        }
        // Single addresses are taken by what loads one value, and of local memory.
        let uniform = address.base.is_scalar();
        let base = if uniform && !scalar && mem.space != Space::Local {
            self.vector(address.base, mem.space != Space::Shared)
        } else {
            address.base.slot()
        };
        let mut step = self.load_step(mem, uniform, scalar, slots.len())?;
        (step.a, step.imm, step.d, step.blend) = (base, address.offset, slots[0], blend);
        if slots.len() > 1 {
            step.x = self.slots(&slots);
        }
        step.y = self.window();
        self.push(step);
        for (slot, reg, place, class) in later {
            let from = if scalar { Place::Scalar(slot) } else { Place::Vector(slot) };
            self.extend(mem.ty, from, lanes_share && place.is_scalar(), reg, class)?;
        }
        if mem.order == Order::Acquire {
            self.fence();
        }
        Ok(())
    }

    /// Two loads of 16 bits side by side that are packed to a word at once, and read by nobody else. Whether these three instructions
    /// were that, and are lowered.
    pub(super) fn load_pair(&mut self, low: &Op, high: &Op, pack: &Op) -> Lowered<bool> {
        let Some((mem, dst)) = self.half_pair(low, high, pack)? else { return Ok(false) };
        let address = self.access(mem)?;
        let (Place::Vector(base), (Place::Vector(to), blend)) = (address.base, self.target(dst, 4)?) else {
            return Ok(false);
        };
        let mut step = self.step::<LoadPair>();
        (step.a, step.imm, step.d, step.blend) = (base, address.offset, to, blend);
        step.y = self.window();
        self.push(step);
        Ok(true)
    }

    /// The first of such two loads and the word that they make, if that is what these instructions are.
    pub(super) fn half_pair<'a>(&self, low: &'a Op, high: &Op, pack: &Op) -> Lowered<Option<(&'a Mem, Reg)>> {
        let (Op::Ld { mem: first, dst: low }, Op::Ld { mem: second, dst: high }, Op::Pack { dst, src, .. }) =
            (low, high, pack)
        else {
            return Ok(None);
        };
        let ([Some(low), Some(high)], [a, b]) =
            ([low.as_slice(), high.as_slice()].map(single), src.as_slice())
        else {
            return Ok(None);
        };
        let halves =
            |mem: &Mem| mem.space == Space::Global && mem.ty.bytes() == 2 && mem.order == Order::Weak;
        let beside = first.base == second.base && second.offset == first.offset.wrapping_add(2);
        let packed = [*a, *b] == [Operand::Reg(low), Operand::Reg(high)] && low != high;
        let once = self.is_read_once(low) && self.is_read_once(high);
        let word =
            self.class(*dst)? == Class::B32 && [self.class(low)?, self.class(high)?] == [Class::B16; 2];
        let all = halves(first) && halves(second) && beside && packed && once && word;
        Ok(all.then_some((first, *dst)))
    }

    /// Brings a loaded element, of 32 bits or as wide as it is, to its register.
    fn extend(&mut self, ty: Ty, from: Place, elect: bool, reg: Reg, class: Class) -> Lowered {
        let from = match from {
            // Lanes have loaded from the same address.
            Place::Vector(slot) if elect => {
                let mut step = self.common::<warps::Elect>();
                let to = self.temporary_scalar();
                if ty.bytes() == 8 {
                    step = self.common::<warps::ElectWide>();
                }
                (step.a, step.d) = (slot, to);
                self.push(step);
                Place::Scalar(to)
            }
            from => from,
        };
        let from = match (ty.signed(), ty.bytes()) {
            (true, 1) => self.apply1::<convert::Sign8>(from)?,
            (true, 2) => self.apply1::<convert::Sign16>(from)?,
            _ => from,
        };
        match (class, ty.bytes()) {
            (Class::B64, 8) => self.copy(reg, 8, from),
            (Class::B64, _) if ty.signed() => self.op1::<convert::WidenSigned>(reg, 8, from),
            (Class::B64, _) => self.op1::<convert::Widen>(reg, 8, from),
            (Class::B16, _) => self.op1::<convert::Low16>(reg, 2, from),
            _ => self.copy(reg, 4, from),
        }
    }

    fn load_step(&self, mem: &Mem, uniform: bool, scalar: bool, count: usize) -> Lowered<Step> {
        let by = |builder: &Self| match (mem.space, scalar) {
            (Space::Global, true) => builder.load_scalar::<Global>(mem.ty, count),
            (Space::Shared, true) => builder.load_scalar::<Shared>(mem.ty, count),
            (_, true) => None,
            (Space::Global, false) => builder.load_from::<Global>(mem.ty, count),
            (Space::Shared, false) => builder.load_from::<Shared>(mem.ty, count),
            (Space::Local, false) => builder.load_local(mem.ty, uniform, count),
            (Space::Generic | Space::Param, false) => builder.load_generic(mem.ty, count),
        };
        by(self).ok_or_else(|| format!("there is no load of {count} of {:?}", mem.ty))
    }

    fn load_from<S: memory::Space>(&self, ty: Ty, count: usize) -> Option<Step> {
        Some(match ty.bytes() {
            1 => self.load_as::<S, FromU8, false>(count),
            2 => self.load_as::<S, FromU16, false>(count),
            4 => self.load_as::<S, Same32, false>(count),
            8 => self.load_as::<S, Same64, false>(count),
            _ => return None,
        })
    }

    /// Of any memory: one function for all instruction sets, for it is large.
    fn load_generic(&self, ty: Ty, count: usize) -> Option<Step> {
        Some(match (ty.bytes(), count) {
            (1, 1) => self.common::<Load<Generic, FromU8, false, 1>>(),
            (1, 2) => self.common::<Load<Generic, FromU8, false, 2>>(),
            (1, _) => self.common::<Load<Generic, FromU8, false, 4>>(),
            (2, 1) => self.common::<Load<Generic, FromU16, false, 1>>(),
            (2, 2) => self.common::<Load<Generic, FromU16, false, 2>>(),
            (2, _) => self.common::<Load<Generic, FromU16, false, 4>>(),
            (4, 1) => self.common::<Load<Generic, Same32, false, 1>>(),
            (4, 2) => self.common::<Load<Generic, Same32, false, 2>>(),
            (4, _) => self.common::<Load<Generic, Same32, false, 4>>(),
            (8, 1) => self.common::<Load<Generic, Same64, false, 1>>(),
            (8, 2) => self.common::<Load<Generic, Same64, false, 2>>(),
            (8, _) => self.common::<Load<Generic, Same64, false, 4>>(),
            _ => return None,
        })
    }

    /// Of local memory: the address may be one that lanes share.
    fn load_local(&self, ty: Ty, uniform: bool, count: usize) -> Option<Step> {
        if !uniform {
            return self.load_from::<Local>(ty, count);
        }
        Some(match ty.bytes() {
            1 => self.load_as::<Local, FromU8, true>(count),
            2 => self.load_as::<Local, FromU16, true>(count),
            4 => self.load_as::<Local, Same32, true>(count),
            8 => self.load_as::<Local, Same64, true>(count),
            _ => return None,
        })
    }

    fn load_as<S: memory::Space, E: Extend, const SCALAR: bool>(&self, count: usize) -> Step {
        match count {
            1 => self.step::<Load<S, E, SCALAR, 1>>(),
            2 => self.step::<Load<S, E, SCALAR, 2>>(),
            _ => self.step::<Load<S, E, SCALAR, 4>>(),
        }
    }

    fn load_scalar<S: memory::Space>(&self, ty: Ty, count: usize) -> Option<Step> {
        Some(match ty.bytes() {
            1 => self.load_scalar_as::<S, FromU8>(count),
            2 => self.load_scalar_as::<S, FromU16>(count),
            4 => self.load_scalar_as::<S, Same32>(count),
            8 => self.load_scalar_as::<S, Same64>(count),
            _ => return None,
        })
    }

    fn load_scalar_as<S: memory::Space, E: Extend>(&self, count: usize) -> Step {
        match count {
            1 => self.common::<LoadScalar<S, E, 1>>(),
            2 => self.common::<LoadScalar<S, E, 2>>(),
            _ => self.common::<LoadScalar<S, E, 4>>(),
        }
    }

    /// A parameter: its value is in the frame from the start.
    fn load_parameter(&mut self, mem: &Mem, dst: Reg) -> Lowered {
        let to = class_bytes(self.class(dst)?);
        let bytes = mem.ty.bytes();
        let offset = u32::try_from(mem.offset).map_err(|_| format!("no parameter at {}", mem.offset))?;
        let end = offset.checked_add(bytes).ok_or("no such parameter")?;
        if bytes == 0 || end > self.kernel.param_bytes || !offset.is_multiple_of(bytes) {
            return Err(format!("no parameter of {bytes} bytes at {offset}"));
        }
        if bytes > to || to == 1 {
            return Err(format!("a register of {to} bytes for a {:?}", mem.ty));
        }
        if let Some(slot) = self.is_parameter(dst) {
            self.initial_parameter(slot, Special::Parameter { offset, bytes, signed: mem.ty.signed(), to });
            return Ok(());
        }
        let place = self.parameter(offset, bytes, mem.ty.signed(), to);
        self.copy(dst, to, place)
    }

    /// `st`
    pub(super) fn store(&mut self, mem: &Mem, src: &[Operand]) -> Lowered {
        if !matches!(src.len(), 1 | 2 | 4) {
            return Err(format!("a vector of {} elements", src.len()));
        }
        if mem.space == Space::Param {
            return Err("parameters of a kernel cannot be written".into());
        }
        if mem.order == Order::Release {
            self.fence();
        }
        let address = self.access(mem)?;
        let wide = mem.ty.bytes() == 8;
        let mut slots = Vec::with_capacity(4);
        for src in src {
            let (mut place, width) = self.loose_source(src, mem.ty.bytes().max(2))?;
            if width == 8 && !wide {
                place = self.apply1::<convert::Narrow>(place)?;
            }
            slots.push(self.vector(place, wide));
        }
        let uniform = address.base.is_scalar();
        let base = if uniform && mem.space != Space::Local {
            self.vector(address.base, mem.space != Space::Shared)
        } else {
            address.base.slot()
        };
        let step = match mem.space {
            Space::Global => self.store_to::<Global, false>(mem.ty, slots.len()),
            Space::Shared if mem.ty.bytes() == 4 => Some(match slots.len() {
                1 => self.step::<Store<Shared, u32, false, 1>>(),
                2 => self.step::<Store<Shared, u32, false, 2>>(),
                _ => self.step::<Store<Shared, u32, false, 4>>(),
            }),
            Space::Shared => self.store_to::<Shared, false>(mem.ty, slots.len()),
            Space::Local if uniform => self.store_to::<Local, true>(mem.ty, slots.len()),
            Space::Local => self.store_to::<Local, false>(mem.ty, slots.len()),
            Space::Generic | Space::Param => self.store_to::<Generic, false>(mem.ty, slots.len()),
        };
        let mut step = step.ok_or_else(|| format!("there is no store of {:?}", mem.ty))?;
        (step.a, step.imm, step.b) = (base, address.offset, slots[0]);
        if slots.len() > 1 {
            step.x = self.slots(&slots);
        }
        step.y = self.window();
        self.push(step);
        Ok(())
    }

    fn store_to<S: memory::Space, const SCALAR: bool>(&self, ty: Ty, count: usize) -> Option<Step> {
        Some(match ty.bytes() {
            1 => self.store_as::<S, u8, SCALAR>(count),
            2 => self.store_as::<S, u16, SCALAR>(count),
            4 => self.store_as::<S, u32, SCALAR>(count),
            8 => self.store_as::<S, u64, SCALAR>(count),
            _ => return None,
        })
    }

    /// One function for all instruction sets: stores are few.
    fn store_as<S: memory::Space, T: Truncate, const SCALAR: bool>(&self, count: usize) -> Step {
        match count {
            1 => self.common::<Store<S, T, SCALAR, 1>>(),
            2 => self.common::<Store<S, T, SCALAR, 2>>(),
            _ => self.common::<Store<S, T, SCALAR, 4>>(),
        }
    }

    /// `atom`, `red`
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
                    Class::B32 => self.apply1::<convert::Widen>(place)?,
                    class => return Err(format!("an address in a register of {} bytes", class_bytes(class))),
                }
            }
            base => {
                let address = self.address(base)?;
                Place::Scalar(self.constant(address))
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
                Place::Vector(slot) => Some(slot),
                Place::Scalar(_) => {
                    return Err("lanes get values of their own from a read-modify-write".into());
                }
            },
            None => None,
        };
        let window = self.window();
        self.tables.atomics.push(AtomicStep {
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
        let mut step = self.common::<Atomic>();
        step.x = self.tables.atomics.len() as u32 - 1;
        self.push(step);
        Ok(())
    }

    /// `membar`, `nanosleep`, `vprintf`
    pub(super) fn system(&mut self, op: &Op) -> Lowered {
        match op {
            Op::Fence => self.fence(),
            Op::Nanosleep { .. } => {
                let step = self.common::<special::Yield>();
                self.push(step);
            }
            Op::Printf { dst, format, arguments } => {
                let (format, arguments) = (self.source(format, 8)?, self.source(arguments, 8)?);
                let (format, arguments) = (self.vector(format, true), self.vector(arguments, true));
                let result = self.temporary_vector(false);
                self.tables.prints.push(PrintStep { format, arguments, dst: Some(result) });
                let mut step = self.common::<Print>();
                step.x = self.tables.prints.len() as u32 - 1;
                self.push(step);
                if let Some(dst) = dst {
                    self.result(*dst, result)?;
                }
            }
            _ => return Err("not a call of the system".into()),
        }
        Ok(())
    }

    /// Copies a vector of 32 bits that an instruction made to a register.
    fn result(&mut self, dst: Reg, from: Slot) -> Lowered {
        let place = if self.place(dst)?.is_scalar() {
            Place::Scalar(self.scalar(Place::Vector(from)))
        } else {
            Place::Vector(from)
        };
        self.op1::<integer::Mov32>(dst, 4, place)
    }
}

/// The only destination of a load, if it has one.
fn single(dst: &[Option<Reg>]) -> Option<Reg> {
    if let [dst] = dst { *dst } else { None }
}

/// The function of a read-modify-write.
fn change(op: Rmw, ty: Ty, float: Float) -> Lowered<Change> {
    let bytes = ty.bytes();
    let missing = Err(format!("there is no {op:?} of {ty:?} in memory"));
    let half = bytes == 2 && matches!(ty, Ty::F16 | Ty::Bf16 | Ty::B16 | Ty::U16);
    if !(matches!(bytes, 4 | 8) || half) {
        return missing;
    }
    Ok(match (op, ty) {
        (Rmw::Exch, _) => Box::new(|_, b, _, _| b),
        (Rmw::Cas, _) => Box::new(|old, b, c, _| if old == b { c } else { old }),
        (Rmw::Add, Ty::F32) => Box::new(move |old, b, _, own| {
            // Sums in device memory flush, those in shared memory do not, if nothing is said.
            let flush = |bits: u64| if own && !float.ftz { bits as u32 } else { F32.flush(bits as u32) };
            let (a, b) = (F32.decode(flush(old)), F32.decode(flush(b)));
            let sum = F32.encode(rounding::add(a, b, false), float.round);
            flush(sum.into()).into()
        }),
        (Rmw::Add, Ty::F64) => {
            Box::new(move |old, b, _, _| double::binary(vgpu_ptx::ir::Binary::Add, old, b, float.round))
        }
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

/// A read-modify-write of a short number.
fn short(op: Rmw, format: Format, old: u64, b: u64) -> u64 {
    let (x, y) = (format.decode(old as u32), format.decode(b as u32));
    match op {
        Rmw::Add => format.encode(rounding::add(x, y, false), vgpu_ptx::ir::Round::Nearest).into(),
        Rmw::Min if x.is_nan() || y < x => b,
        Rmw::Max if x.is_nan() || y > x => b,
        _ => old,
    }
}
