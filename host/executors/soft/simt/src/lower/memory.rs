//! Lowers loads and stores, and the addresses of all accesses.

use vgpu_ptx::ir::{Base, Class, Mem, Operand, Order, Reg, Space, Ty, window};

use crate::machine::{InitialValue, Inst, ValueLoc};
use crate::ops::memory::{
    self, Extend, FromU8, FromU16, Generic, Global, Load, LoadScalar, Local, Same32, Same64, Shared, Store,
    Truncate,
};
use crate::ops::{convert, integer, special, warps};

use super::builder::Builder;
use super::error::Lowered;
use super::places::class_bytes;

/// Address of a memory access, as a base and an offset in bytes that is added to it.
#[derive(Clone, Copy)]
pub(super) struct AccessAddress {
    pub(super) base: ValueLoc,
    pub(super) offset: u64,
}

impl Builder<'_> {
    /// Lowers the address of a memory operand. It has 64 bits for device, generic and parameter memory, and
    /// 32 bits for other memory.
    pub(super) fn access(&mut self, mem: &Mem) -> Lowered<AccessAddress> {
        let wide = matches!(mem.space, Space::Global | Space::Generic | Space::Param);
        let Base::Reg(reg) = mem.base else {
            let address = self.address(mem.base)?.wrapping_add_signed(mem.offset);
            let address =
                if mem.space == Space::Param { address.wrapping_add(window::PARAM) } else { address };
            let address = if wide { address } else { u64::from(u32::try_from(address).unwrap_or(u32::MAX)) };
            return Ok(AccessAddress { base: ValueLoc::Scalar(self.constant(address)), offset: 0 });
        };
        let mut offset = mem.offset.cast_unsigned();
        if mem.space == Space::Param {
            // Parameters are rarely accessed by address, and then through their window.
            offset = offset.wrapping_add(window::PARAM);
        }
        let place = self.place(reg)?;
        match (self.class(reg)?, wide) {
            (Class::B64, true) | (Class::B32, false) => Ok(AccessAddress { base: place, offset }),
            (Class::B32, true) => Ok(AccessAddress { base: self.apply1::<convert::Widen>(place)?, offset }),
            (Class::B64, false) => {
                let by = ValueLoc::Scalar(self.constant(offset));
                let sum = if offset == 0 { place } else { self.apply2::<integer::Add64>(place, by)? };
                Ok(AccessAddress { base: self.apply1::<convert::NarrowAddress>(sum)?, offset: 0 })
            }
            (class, _) => Err(format!("an address in a register of {} bytes", class_bytes(class))),
        }
    }

    /// Allocates the window of an instruction that accesses device memory. Returns its index.
    pub(super) fn window(&mut self) -> u32 {
        self.windows += 1;
        self.windows - 1
    }

    /// Emits a fence of this thread's accesses to device memory.
    pub(super) fn fence(&mut self) {
        self.push(self.baseline_inst::<special::Fence>());
    }

    /// Lowers `ld` of one, two or four elements.
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
        // Each element goes to a slot first, and from there to its register unless that is the slot.
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
        let direct = |place: ValueLoc, class: Class| {
            // Elements arrive in 32 or 64 bits with zeros above. Those with a sign are extended later.
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
        // Only loads of one element, and those of local memory, take an address that lanes share.
        let uniform = address.base.is_scalar();
        let base = if uniform && !scalar && mem.space != Space::Local {
            self.vector(address.base, mem.space != Space::Shared)
        } else {
            address.base.slot()
        };
        let mut inst = self.load_inst(mem, uniform, scalar, slots.len())?;
        (inst.a, inst.imm, inst.d, inst.blend) = (base, address.offset, slots[0], blend);
        if slots.len() > 1 {
            inst.x = self.slots(&slots);
        }
        inst.y = self.window();
        self.push(inst);
        for (slot, reg, place, class) in later {
            let from = if scalar { ValueLoc::Scalar(slot) } else { ValueLoc::Vector(slot) };
            self.extend(mem.ty, from, lanes_share && place.is_scalar(), reg, class)?;
        }
        if mem.order == Order::Acquire {
            self.fence();
        }
        Ok(())
    }

    /// Extends a loaded element to its register. `elect` tells that all lanes have loaded the same value.
    fn extend(&mut self, ty: Ty, from: ValueLoc, elect: bool, reg: Reg, class: Class) -> Lowered {
        let from = match from {
            ValueLoc::Vector(slot) if elect => {
                let mut inst = if ty.bytes() == 8 {
                    self.baseline_inst::<warps::Elect<u64>>()
                } else {
                    self.baseline_inst::<warps::Elect<u32>>()
                };
                inst.a = slot;
                ValueLoc::Scalar(self.push_scalar(inst))
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

    fn load_inst(&self, mem: &Mem, uniform: bool, scalar: bool, count: usize) -> Lowered<Inst> {
        let by = |builder: &Self| match (mem.space, scalar) {
            (Space::Global, true) => builder.load_scalar::<Global>(mem.ty, count),
            (Space::Shared, true) => builder.load_scalar::<Shared>(mem.ty, count),
            (_, true) => None,
            (Space::Global, false) => builder.load_from::<Global, false>(mem.ty, count),
            (Space::Shared, false) => builder.load_from::<Shared, false>(mem.ty, count),
            (Space::Local, false) if uniform => builder.load_from::<Local, true>(mem.ty, count),
            (Space::Local, false) => builder.load_from::<Local, false>(mem.ty, count),
            (Space::Generic | Space::Param, false) => builder.load_generic(mem.ty, count),
        };
        by(self).ok_or_else(|| format!("there is no load of {count} of {:?}", mem.ty))
    }

    /// Returns the instruction of a load. With `SCALAR`, all lanes share its address.
    fn load_from<S: memory::Space, const SCALAR: bool>(&self, ty: Ty, count: usize) -> Option<Inst> {
        Some(match ty.bytes() {
            1 => self.load_as::<S, FromU8, SCALAR>(count),
            2 => self.load_as::<S, FromU16, SCALAR>(count),
            4 => self.load_as::<S, Same32, SCALAR>(count),
            8 => self.load_as::<S, Same64, SCALAR>(count),
            _ => return None,
        })
    }

    /// Returns the instruction of a load through generic addresses. All instruction sets share one function,
    /// because that function is large.
    fn load_generic(&self, ty: Ty, count: usize) -> Option<Inst> {
        Some(match (ty.bytes(), count) {
            (1, 1) => self.baseline_inst::<Load<Generic, FromU8, false, 1>>(),
            (1, 2) => self.baseline_inst::<Load<Generic, FromU8, false, 2>>(),
            (1, _) => self.baseline_inst::<Load<Generic, FromU8, false, 4>>(),
            (2, 1) => self.baseline_inst::<Load<Generic, FromU16, false, 1>>(),
            (2, 2) => self.baseline_inst::<Load<Generic, FromU16, false, 2>>(),
            (2, _) => self.baseline_inst::<Load<Generic, FromU16, false, 4>>(),
            (4, 1) => self.baseline_inst::<Load<Generic, Same32, false, 1>>(),
            (4, 2) => self.baseline_inst::<Load<Generic, Same32, false, 2>>(),
            (4, _) => self.baseline_inst::<Load<Generic, Same32, false, 4>>(),
            (8, 1) => self.baseline_inst::<Load<Generic, Same64, false, 1>>(),
            (8, 2) => self.baseline_inst::<Load<Generic, Same64, false, 2>>(),
            (8, _) => self.baseline_inst::<Load<Generic, Same64, false, 4>>(),
            _ => return None,
        })
    }

    fn load_as<S: memory::Space, E: Extend, const SCALAR: bool>(&self, count: usize) -> Inst {
        match count {
            1 => self.inst::<Load<S, E, SCALAR, 1>>(),
            2 => self.inst::<Load<S, E, SCALAR, 2>>(),
            _ => self.inst::<Load<S, E, SCALAR, 4>>(),
        }
    }

    fn load_scalar<S: memory::Space>(&self, ty: Ty, count: usize) -> Option<Inst> {
        Some(match ty.bytes() {
            1 => self.load_scalar_as::<S, FromU8>(count),
            2 => self.load_scalar_as::<S, FromU16>(count),
            4 => self.load_scalar_as::<S, Same32>(count),
            8 => self.load_scalar_as::<S, Same64>(count),
            _ => return None,
        })
    }

    fn load_scalar_as<S: memory::Space, E: Extend>(&self, count: usize) -> Inst {
        match count {
            1 => self.baseline_inst::<LoadScalar<S, E, 1>>(),
            2 => self.baseline_inst::<LoadScalar<S, E, 2>>(),
            _ => self.baseline_inst::<LoadScalar<S, E, 4>>(),
        }
    }

    /// Lowers a load of a parameter, whose value frames hold from the start.
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
            self.initial_parameter(
                slot,
                InitialValue::Parameter { offset, bytes, signed: mem.ty.signed(), to },
            );
            return Ok(());
        }
        let place = self.parameter(offset, bytes, mem.ty.signed(), to);
        self.copy(dst, to, place)
    }

    /// Lowers `st` of one, two or four elements.
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
        let inst = match mem.space {
            Space::Global => self.store_to::<Global, false>(mem.ty, slots.len()),
            Space::Shared if mem.ty.bytes() == 4 => Some(match slots.len() {
                1 => self.inst::<Store<Shared, u32, false, 1>>(),
                2 => self.inst::<Store<Shared, u32, false, 2>>(),
                _ => self.inst::<Store<Shared, u32, false, 4>>(),
            }),
            Space::Shared => self.store_to::<Shared, false>(mem.ty, slots.len()),
            Space::Local if uniform => self.store_to::<Local, true>(mem.ty, slots.len()),
            Space::Local => self.store_to::<Local, false>(mem.ty, slots.len()),
            Space::Generic | Space::Param => self.store_to::<Generic, false>(mem.ty, slots.len()),
        };
        let mut inst = inst.ok_or_else(|| format!("there is no store of {:?}", mem.ty))?;
        (inst.a, inst.imm, inst.b) = (base, address.offset, slots[0]);
        if slots.len() > 1 {
            inst.x = self.slots(&slots);
        }
        inst.y = self.window();
        self.push(inst);
        Ok(())
    }

    fn store_to<S: memory::Space, const SCALAR: bool>(&self, ty: Ty, count: usize) -> Option<Inst> {
        Some(match ty.bytes() {
            1 => self.store_as::<S, u8, SCALAR>(count),
            2 => self.store_as::<S, u16, SCALAR>(count),
            4 => self.store_as::<S, u32, SCALAR>(count),
            8 => self.store_as::<S, u64, SCALAR>(count),
            _ => return None,
        })
    }

    /// Returns the instruction of a store. All instruction sets share one function, because kernels have few
    /// stores.
    fn store_as<S: memory::Space, T: Truncate, const SCALAR: bool>(&self, count: usize) -> Inst {
        match count {
            1 => self.baseline_inst::<Store<S, T, SCALAR, 1>>(),
            2 => self.baseline_inst::<Store<S, T, SCALAR, 2>>(),
            _ => self.baseline_inst::<Store<S, T, SCALAR, 4>>(),
        }
    }
}
