//! Locations of operands: registers, constants, parameters, special registers, and temporaries.

use vgpu_ptx::ir::{self, Base, Class, Guard, Operand, Reg};

use crate::machine::{InitialValue, Opcode, Slot, SlotList, ValueLoc};

use super::builder::Builder;
use super::error::Lowered;

/// Returns the size of a register in bytes. A predicate counts as one byte.
pub(super) const fn class_bytes(class: Class) -> u32 {
    match class {
        Class::Pred => 1,
        Class::B16 => 2,
        Class::B32 => 4,
        Class::B64 => 8,
    }
}

impl Builder<'_> {
    /// Returns a scalar slot that is free until the current PTX instruction has been lowered.
    pub(super) fn temporary_scalar(&mut self) -> Slot {
        self.temporary_scalars.allocate(|| self.layout.scalar()).slot
    }

    /// Returns a vector slot that is free until the current PTX instruction has been lowered. Lanes have
    /// eight bytes if it is `wide`, else four.
    pub(super) fn temporary_vector(&mut self, wide: bool) -> Slot {
        let waits = self.waits();
        let temporaries = if wide { &mut self.temporary_wide } else { &mut self.temporary_narrow };
        let temporary = temporaries.allocate(|| self.layout.vector(wide));
        // Splits that merge at this instruction copy the slot, because machine code has written only the parts
        // with active lanes.
        if waits && !temporary.carried {
            temporary.carried = true;
            let registers = if wide { &mut self.registers.wide } else { &mut self.registers.narrow };
            registers.push(temporary.slot);
        }
        temporary.slot
    }

    /// Returns the slot of a constant, which is allocated on first use.
    pub(super) fn constant(&mut self, value: u64) -> Slot {
        if let Some(&slot) = self.scalars.get(&value) {
            return slot;
        }
        let slot = self.layout.scalar();
        self.scalars.insert(value, slot);
        self.constants.insert(slot, value);
        self.initial.scalars.push((slot, value));
        slot
    }

    /// Returns the constant at a location, or `None` if it holds no constant.
    pub(super) fn constant_of(&self, place: ValueLoc) -> Option<u64> {
        match place {
            ValueLoc::Scalar(slot) => self.constants.get(&slot).copied(),
            ValueLoc::Vector(_) => None,
        }
    }

    /// Returns the class of a register. A register that does not exist is an error.
    pub(super) fn class(&self, reg: Reg) -> Lowered<Class> {
        self.kernel.registers.get(reg.0 as usize).copied().ok_or_else(|| format!("no register {}", reg.0))
    }

    /// Returns the location of a register, or an error if the register does not exist.
    pub(super) fn place(&self, reg: Reg) -> Lowered<ValueLoc> {
        self.class(reg)?;
        Ok(self.allocation.places[reg.0 as usize])
    }

    /// Returns the slot of a predicate in which each lane has its own bit, for an instruction by which lanes
    /// exchange it. A predicate that they share is copied: splits that do not share it may take part.
    pub(super) fn exchanged_predicate(&mut self, guard: Guard) -> Lowered<(Slot, bool)> {
        let (place, inverted) = self.guard(guard)?;
        let ValueLoc::Scalar(_) = place else { return Ok((place.slot(), inverted)) };
        let temporary = self.temporary_predicates.allocate(|| self.layout.scalar());
        if !temporary.carried {
            temporary.carried = true;
            self.registers.predicates.push(temporary.slot);
        }
        let slot = temporary.slot;
        self.copy_predicate(ValueLoc::Vector(slot), place)?;
        Ok((slot, inverted))
    }

    /// Returns whether the lanes of a warp may have different values of an operand.
    pub(super) fn differs(&self, operand: &Operand) -> bool {
        match *operand {
            Operand::Reg(reg) => {
                self.allocation.places.get(reg.0 as usize).is_some_and(|place| !place.is_scalar())
            }
            Operand::Special(special) => self.special_differs(special),
            Operand::Imm(_) | Operand::Address(..) => false,
        }
    }

    /// Returns whether the lanes of a warp may have different values of a special register.
    const fn special_differs(&self, special: ir::Special) -> bool {
        match special {
            ir::Special::Tid(0)
            | ir::Special::LaneId
            | ir::Special::LaneMaskEq
            | ir::Special::LaneMaskLe
            | ir::Special::LaneMaskLt
            | ir::Special::LaneMaskGe
            | ir::Special::LaneMaskGt => true,
            ir::Special::Tid(_) => !self.allocation.tid_yz_uniform,
            _ => false,
        }
    }

    /// Returns whether waiting lanes have their own values in a register while this block runs.
    pub(super) fn blends(&self, reg: Reg) -> bool {
        self.grouped || self.allocation.analysis.waiting[self.block].contains(reg)
    }

    /// Returns the constant that a register always holds, if there is one.
    pub(super) fn constant_register(&self, reg: Reg) -> Option<u64> {
        self.constant_of(*self.allocation.places.get(reg.0 as usize)?)
    }

    /// Gives registers that always hold a constant the location of that constant.
    pub(super) fn place_constants(&mut self) -> Lowered {
        let mut constants: Vec<(Reg, Operand)> = self.allocation.constants.drain().collect();
        constants.sort_unstable_by_key(|(reg, _)| *reg);
        for (reg, value) in constants {
            let place = self.source(&value, class_bytes(self.class(reg)?))?;
            self.allocation.places[reg.0 as usize] = place;
        }
        Ok(())
    }

    /// Returns whether no instruction reads a register.
    pub(super) fn is_dead(&self, reg: Reg) -> bool {
        self.allocation.reads[reg.0 as usize] == 0
    }

    /// Returns whether exactly one instruction reads a register, and reads it once.
    pub(super) fn is_read_once(&self, reg: Reg) -> bool {
        self.allocation.reads[reg.0 as usize] == 1
    }

    /// Returns the slot of a register that holds the value of a parameter from the start.
    pub(super) fn is_parameter(&self, reg: Reg) -> Option<Slot> {
        self.allocation.parameters.get(&reg).copied()
    }

    /// Returns the location of a register. Fails unless the register has `bytes` bytes.
    pub(super) fn register(&self, reg: Reg, bytes: u32) -> Lowered<ValueLoc> {
        let has = class_bytes(self.class(reg)?);
        if has != bytes {
            return Err(format!("register {} has {has} bytes, not {bytes}", reg.0));
        }
        self.place(reg)
    }

    /// Returns the location of an operand of `bytes` bytes.
    pub(super) fn source(&mut self, operand: &Operand, bytes: u32) -> Lowered<ValueLoc> {
        match *operand {
            Operand::Reg(reg) => self.register(reg, bytes),
            Operand::Imm(value) => {
                let value = if bytes < 8 { value & ((1 << (8 * bytes)) - 1) } else { value };
                Ok(ValueLoc::Scalar(self.constant(value)))
            }
            Operand::Special(special) => self.special_operand(special, bytes),
            Operand::Address(base, offset) => {
                let address = self.address(base)?.wrapping_add_signed(offset);
                let address = if bytes < 8 { address & ((1 << (8 * bytes)) - 1) } else { address };
                Ok(ValueLoc::Scalar(self.constant(address)))
            }
        }
    }

    /// Returns the locations of operands, each of which is given with its size in bytes.
    pub(super) fn sources<const N: usize>(
        &mut self,
        operands: [(&Operand, u32); N],
    ) -> Lowered<[ValueLoc; N]> {
        let mut places = [ValueLoc::Scalar(Slot::NONE); N];
        for (place, (operand, bytes)) in places.iter_mut().zip(operands) {
            *place = self.source(operand, bytes)?;
        }
        Ok(places)
    }

    /// Returns the value of an address that does not depend on a register: an offset, or a variable's device
    /// address.
    pub(super) fn address(&self, base: Base) -> Lowered<u64> {
        match base {
            Base::Zero => Ok(0),
            Base::DynamicShared => Ok(self.kernel.dynamic_shared_offset.into()),
            Base::Global(index) => {
                self.globals.get(index).ok_or_else(|| format!("no global variable {index}"))
            }
            Base::Reg(_) => Err("an address of a register".into()),
        }
    }

    /// Returns the location and the width of an operand, for instructions that accept registers wider than
    /// `bytes`. Operands other than registers have `bytes` bytes.
    pub(super) fn loose_source(&mut self, operand: &Operand, bytes: u32) -> Lowered<(ValueLoc, u32)> {
        let width = match *operand {
            Operand::Reg(reg) => class_bytes(self.class(reg)?),
            _ => bytes,
        };
        if width < bytes {
            return Err(format!("an operand of {width} bytes where {bytes} are needed"));
        }
        Ok((self.source(operand, width)?, width))
    }

    /// Returns the location of a predicate, and whether it is inverted.
    pub(super) fn guard(&self, guard: Guard) -> Lowered<(ValueLoc, bool)> {
        Ok((self.register(guard.reg, 1)?, guard.negated))
    }

    /// Returns the location of a special register as an operand of `bytes` bytes.
    fn special_operand(&mut self, special: ir::Special, bytes: u32) -> Lowered<ValueLoc> {
        let clock = match special {
            ir::Special::Clock | ir::Special::Clock64 => Some(Opcode::Clock),
            ir::Special::GlobalTimer => Some(Opcode::GlobalTimer),
            _ => None,
        };
        if let Some(opcode) = clock {
            let inst = self.inst(opcode);
            return Ok(ValueLoc::Scalar(self.push_scalar(inst)));
        }
        let place = self.special(special);
        match (bytes, place) {
            (4, _) => Ok(place),
            (2, _) => self.apply(Opcode::Low16, [place]),
            (8, _) => self.apply(Opcode::Widen, [place]),
            _ => Err(format!("a special register as an operand of {bytes} bytes")),
        }
    }

    /// Returns the location of a special register whose value does not change while a block runs.
    fn special(&mut self, special: ir::Special) -> ValueLoc {
        if let ir::Special::Ctaid(axis) = special {
            let key = InitialValue::Ptx(special);
            if let Some(&place) = self.specials.get(&key) {
                return place;
            }
            let slot = self.layout.scalar();
            self.initial.block.push((slot, axis));
            self.specials.insert(key, ValueLoc::Scalar(slot));
            return ValueLoc::Scalar(slot);
        }
        self.initial_value(InitialValue::Ptx(special), self.special_differs(special))
    }

    /// Returns the location of a value that frames hold from the start. `lanes` tells that each lane has its
    /// own value.
    fn initial_value(&mut self, special: InitialValue, lanes: bool) -> ValueLoc {
        if let Some(&place) = self.specials.get(&special) {
            return place;
        }
        let place = if lanes {
            ValueLoc::Vector(self.layout.vector(false))
        } else {
            ValueLoc::Scalar(self.layout.scalar())
        };
        self.specials.insert(special, place);
        let list = if special.of_warp() { &mut self.initial.of_warp } else { &mut self.initial.specials };
        list.push((special, place));
        place
    }

    /// Returns the location of an element of the parameters, extended to `to` bytes.
    pub(super) fn parameter(&mut self, offset: u32, bytes: u32, signed: bool, to: u32) -> ValueLoc {
        self.initial_value(InitialValue::Parameter { offset, bytes, signed, to }, false)
    }

    /// Makes frames hold a parameter in the slot of a register from the start.
    pub(super) fn initial_parameter(&mut self, slot: Slot, special: InitialValue) {
        self.initial.specials.push((special, ValueLoc::Scalar(slot)));
    }

    /// Returns a value as a vector: its own slot, or that of a vector whose lanes all hold the scalar.
    pub(super) fn vector(&mut self, place: ValueLoc, wide: bool) -> Slot {
        let scalar = match place {
            ValueLoc::Vector(slot) => return slot,
            ValueLoc::Scalar(slot) => slot,
        };
        if let Some(&value) = self.constants.get(&scalar) {
            let value = if wide { value } else { value & 0xffff_ffff };
            if let Some(&slot) = self.vectors.get(&(value, wide)) {
                return slot;
            }
            let slot = self.layout.vector(wide);
            self.vectors.insert((value, wide), slot);
            if wide {
                self.initial.wide_vectors.push((slot, value));
            } else {
                self.initial.narrow_vectors.push((slot, value as u32));
            }
            return slot;
        }
        let slot = self.temporary_vector(wide);
        self.splat(scalar, slot, wide, false);
        slot
    }

    /// Returns a value as a scalar: its own slot, or that of the lowest active lane's value.
    pub(super) fn scalar(&mut self, place: ValueLoc) -> Slot {
        match place {
            ValueLoc::Scalar(slot) => slot,
            ValueLoc::Vector(slot) => {
                let mut inst = self.inst(Opcode::Elect32);
                inst.a = slot;
                self.push_scalar(inst)
            }
        }
    }

    /// Adds a list of up to four slots to the tables. Returns its index.
    pub(super) fn slots(&mut self, slots: &[Slot]) -> u32 {
        let mut list = [Slot::NONE; 4];
        for (to, from) in list.iter_mut().zip(slots) {
            *to = *from;
        }
        self.tables.memory.push(SlotList { slots: list });
        self.tables.memory.len() as u32 - 1
    }
}
