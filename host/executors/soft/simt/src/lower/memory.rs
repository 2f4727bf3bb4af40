//! Lowers loads and stores, and the addresses of all accesses.

use vgpu_ptx::ir::{Base, Class, Mem, Operand, Order, Reg, Space, Ty, window};

use crate::machine::{Form, InitialValue, Opcode, ValueLoc, set};

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
            (Class::B32, true) => Ok(AccessAddress { base: self.apply(Opcode::Widen, [place])?, offset }),
            (Class::B64, false) => {
                let by = ValueLoc::Scalar(self.constant(offset));
                let sum = if offset == 0 { place } else { self.apply(Opcode::Add64, [place, by])? };
                Ok(AccessAddress { base: self.apply(Opcode::NarrowAddress, [sum])?, offset: 0 })
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
        self.push(self.inst(Opcode::Fence));
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
        let opcode = load_opcode(mem.space, mem.ty)?;
        let shared = uniform && (scalar || mem.space == Space::Local);
        let form = Form::counted(slots.len()).share(set::A, shared).share(set::D, scalar);
        let mut inst = self.inst_of(opcode, form)?;
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
                let mut inst = self.inst(if ty.bytes() == 8 { Opcode::Elect64 } else { Opcode::Elect32 });
                inst.a = slot;
                ValueLoc::Scalar(self.push_scalar(inst))
            }
            from => from,
        };
        let from = match (ty.signed(), ty.bytes()) {
            (true, 1) => self.apply(Opcode::Sign8, [from])?,
            (true, 2) => self.apply(Opcode::Sign16, [from])?,
            _ => from,
        };
        match (class, ty.bytes()) {
            (Class::B64, 8) => self.copy(reg, 8, from),
            (Class::B64, _) if ty.signed() => self.op(Opcode::WidenSigned, reg, 8, [from]),
            (Class::B64, _) => self.op(Opcode::Widen, reg, 8, [from]),
            (Class::B16, _) => self.op(Opcode::Low16, reg, 2, [from]),
            _ => self.copy(reg, 4, from),
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
                place = self.apply(Opcode::Narrow, [place])?;
            }
            slots.push(self.vector(place, wide));
        }
        let uniform = address.base.is_scalar();
        let base = if uniform && mem.space != Space::Local {
            self.vector(address.base, mem.space != Space::Shared)
        } else {
            address.base.slot()
        };
        let form = Form::counted(slots.len()).share(set::A, uniform && mem.space == Space::Local);
        let mut inst = self.inst_of(store_opcode(mem.space, mem.ty)?, form)?;
        (inst.a, inst.imm, inst.b) = (base, address.offset, slots[0]);
        if slots.len() > 1 {
            inst.x = self.slots(&slots);
        }
        inst.y = self.window();
        self.push(inst);
        Ok(())
    }
}

/// Returns the opcode of a load of elements of a type.
fn load_opcode(space: Space, ty: Ty) -> Lowered<Opcode> {
    Ok(match (space, ty.bytes()) {
        (Space::Global, 1) => Opcode::LdGlobalU8,
        (Space::Global, 2) => Opcode::LdGlobalU16,
        (Space::Global, 4) => Opcode::LdGlobal32,
        (Space::Global, 8) => Opcode::LdGlobal64,
        (Space::Shared, 1) => Opcode::LdSharedU8,
        (Space::Shared, 2) => Opcode::LdSharedU16,
        (Space::Shared, 4) => Opcode::LdShared32,
        (Space::Shared, 8) => Opcode::LdShared64,
        (Space::Local, 1) => Opcode::LdLocalU8,
        (Space::Local, 2) => Opcode::LdLocalU16,
        (Space::Local, 4) => Opcode::LdLocal32,
        (Space::Local, 8) => Opcode::LdLocal64,
        (Space::Generic | Space::Param, 1) => Opcode::LdGenericU8,
        (Space::Generic | Space::Param, 2) => Opcode::LdGenericU16,
        (Space::Generic | Space::Param, 4) => Opcode::LdGeneric32,
        (Space::Generic | Space::Param, 8) => Opcode::LdGeneric64,
        _ => return Err(format!("there is no load of {ty:?}")),
    })
}

/// Returns the opcode of a store of elements of a type.
fn store_opcode(space: Space, ty: Ty) -> Lowered<Opcode> {
    Ok(match (space, ty.bytes()) {
        (Space::Global, 1) => Opcode::StGlobal8,
        (Space::Global, 2) => Opcode::StGlobal16,
        (Space::Global, 4) => Opcode::StGlobal32,
        (Space::Global, 8) => Opcode::StGlobal64,
        (Space::Shared, 1) => Opcode::StShared8,
        (Space::Shared, 2) => Opcode::StShared16,
        (Space::Shared, 4) => Opcode::StShared32,
        (Space::Shared, 8) => Opcode::StShared64,
        (Space::Local, 1) => Opcode::StLocal8,
        (Space::Local, 2) => Opcode::StLocal16,
        (Space::Local, 4) => Opcode::StLocal32,
        (Space::Local, 8) => Opcode::StLocal64,
        (Space::Generic | Space::Param, 1) => Opcode::StGeneric8,
        (Space::Generic | Space::Param, 2) => Opcode::StGeneric16,
        (Space::Generic | Space::Param, 4) => Opcode::StGeneric32,
        (Space::Generic | Space::Param, 8) => Opcode::StGeneric64,
        _ => return Err(format!("there is no store of {ty:?}")),
    })
}
