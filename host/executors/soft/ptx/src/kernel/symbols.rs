//! Names in a kernel: nested scopes, ranges of registers, labels.
//!
//! Braces open a scope. Inline assembly declares its registers and labels in one, with names that occur
//! elsewhere too. A register gets its number in [`Kernel::registers`](crate::ir::Kernel::registers) when it
//! is first used, because nvcc declares ranges that it does not use completely.

use std::collections::HashMap;

use crate::ir::{Base, Class, Reg, Space};
use crate::lex::TextPosition;

/// Largest depth of nested scopes, those of inlined functions included.
pub const SCOPES_MOST: u64 = 64;
/// Largest number of registers that a kernel may declare.
pub const REGISTERS_MOST: u64 = 1 << 20;

/// Meaning of a name in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// A register of the kernel.
    Reg(Reg),
    /// A variable, with its offset in its space, or in the module's variable if it is global, and the size of
    /// an element in bytes.
    Variable { space: Space, base: Base, offset: i64, element: u64 },
    /// A parameter of a call, which is in a register.
    CallParam(Reg),
    /// A parameter of a call, in local memory.
    CallMemory { base: Base, offset: i64, bytes: u64 },
    /// A function, by its address.
    Function(u64),
    /// The prototype of a call, `.callprototype`.
    Prototype,
    /// The functions that `.calltargets` lists, as the position of the list. Each call through it reads the
    /// list again, so that copies of a function hold no lists.
    Targets(TextPosition),
    /// The labels that `.branchtargets` lists, as the position of the list.
    Branches(TextPosition),
}

/// Reference to a label, as an index into the list of all references.
pub type LabelRef = usize;

/// Range of registers, such as `.reg .b32 %r<7>`.
#[derive(Clone, Debug)]
struct RegisterRange {
    class: Class,
    /// Register of each number of the range, or `None` if it has not been used yet.
    numbers: Vec<Option<Reg>>,
}

#[derive(Clone, Debug, Default)]
struct Scope<'t> {
    names: HashMap<&'t [u8], Symbol>,
    /// Ranges by the part of the name before the number.
    ranges: HashMap<&'t [u8], RegisterRange>,
    /// Block of each label that this scope declares.
    labels: HashMap<&'t [u8], u32>,
    /// References to labels that are not resolved yet.
    pending: Vec<(&'t [u8], LabelRef)>,
    /// Whether the scope is that of a function's body, in which outer names are not visible.
    function: bool,
}

/// Open scopes, and the registers in use.
#[derive(Clone, Debug)]
pub struct Scopes<'t> {
    stack: Vec<Scope<'t>>,
    registers: Vec<Class>,
    declared: u64,
    /// Block of each reference to a label.
    targets: Vec<Option<u32>>,
    /// Name and position of each reference, for errors.
    names: Vec<(&'t [u8], TextPosition)>,
    /// Work of name lookups. It is the length of a name in units of eight bytes, counted for each scope or
    /// range in which the name was looked up.
    work: u64,
    /// Number of declared names, labels included.
    declared_names: u64,
}

/// Classes of all registers, and the block of each reference to a label.
pub type Finished = (Vec<Class>, Vec<u32>);

/// Reason for which a name cannot be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclareError {
    /// The scope already declares the name.
    Twice,
    /// There would be too many registers.
    TooMany,
}

impl<'t> Scopes<'t> {
    /// Makes the table with the kernel's outermost scope open.
    pub fn new() -> Self {
        Self {
            stack: vec![Scope::default()],
            registers: Vec::new(),
            declared: 0,
            targets: Vec::new(),
            names: Vec::new(),
            work: 0,
            declared_names: 0,
        }
    }

    /// Returns the work of name lookups since the last call, in steps of [`Effort`](crate::Effort).
    pub fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Returns the approximate size in bytes of names, registers and references to labels.
    pub fn bytes(&self) -> u64 {
        const NAME: u64 = 64;
        const REFERENCE: u64 = 72;
        self.declared_names * NAME + self.declared * 8 + self.names.len() as u64 * REFERENCE
    }

    /// Returns the number of open scopes, which is 0 once the outermost is closed.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    /// Opens a scope within the innermost one.
    pub fn open(&mut self) {
        self.stack.push(Scope::default());
    }

    /// Opens the scope of a function's body, in which outer names are not visible.
    pub fn open_function(&mut self) {
        self.stack.push(Scope { function: true, ..Scope::default() });
    }

    /// Closes the innermost scope. References to labels that it does not have move to the enclosing scope.
    pub fn close(&mut self) {
        let Some(scope) = self.stack.pop() else { return };
        for (name, reference) in scope.pending {
            if let Some(&block) = scope.labels.get(name) {
                self.targets[reference] = Some(block);
            } else if !scope.function
                && let Some(outer) = self.stack.last_mut()
            {
                outer.pending.push((name, reference));
            }
        }
    }

    /// Returns the kernel's registers and the blocks of its references to labels, after all scopes are
    /// closed. The error is a label that does not exist.
    pub fn finish(mut self) -> Result<Finished, (&'t [u8], TextPosition)> {
        while !self.stack.is_empty() {
            self.close();
        }
        let targets = self.targets.iter().zip(&self.names).map(|(target, name)| target.ok_or(*name));
        Ok((self.registers, targets.collect::<Result<_, _>>()?))
    }

    fn innermost(&mut self) -> &mut Scope<'t> {
        if self.stack.is_empty() {
            self.open();
        }
        let last = self.stack.len() - 1;
        &mut self.stack[last]
    }

    /// Declares a variable or a parameter.
    pub fn declare(&mut self, name: &'t [u8], symbol: Symbol) -> Result<(), DeclareError> {
        self.declared_names += 1;
        match self.innermost().names.insert(name, symbol) {
            None => Ok(()),
            Some(_) => Err(DeclareError::Twice),
        }
    }

    /// Declares one register. Fails if the scope has the name or the kernel has too many registers.
    pub fn declare_register(&mut self, name: &'t [u8], class: Class) -> Result<(), DeclareError> {
        let reg = self.register(class)?;
        self.declare(name, Symbol::Reg(reg))
    }

    /// Declares the registers `prefix0` to `prefix(count - 1)`. They get numbers when they are first used.
    pub fn declare_range(&mut self, prefix: &'t [u8], count: u64, class: Class) -> Result<(), DeclareError> {
        self.count(count)?;
        let range = RegisterRange { class, numbers: vec![None; count as usize] };
        match self.innermost().ranges.insert(prefix, range) {
            None => Ok(()),
            Some(_) => Err(DeclareError::Twice),
        }
    }

    fn count(&mut self, registers: u64) -> Result<(), DeclareError> {
        self.declared = self.declared.saturating_add(registers);
        if self.declared > REGISTERS_MOST { Err(DeclareError::TooMany) } else { Ok(()) }
    }

    /// Makes a register without a name, for instructions that the parser adds.
    pub fn register(&mut self, class: Class) -> Result<Reg, DeclareError> {
        self.count(1)?;
        self.registers.push(class);
        Ok(Reg(self.registers.len() as u32 - 1))
    }

    /// Returns the class of a register, which is its width.
    pub fn class(&self, reg: Reg) -> Class {
        self.registers[reg.0 as usize]
    }

    /// Finds the meaning of a name, in the innermost scope first, up to the body of the current function.
    /// Numbers a register of a range at its first use.
    pub fn find(&mut self, name: &[u8]) -> Option<Symbol> {
        self.work += (self.stack.len() * (1 + name.len() / 8)) as u64;
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).take(7).count();
        for scope in self.stack.iter_mut().rev() {
            // The most frequent case is first: `%r12` of the range `%r`. Prefixes may also end in digits.
            for split in name.len() - digits..name.len() {
                let (prefix, number) = name.split_at(split);
                let Some(range) = scope.ranges.get_mut(prefix) else { continue };
                // The name `%r01` is not `%r1`.
                if number.len() > 1 && number[0] == b'0' {
                    continue;
                }
                let number = number.iter().fold(0, |number, byte| number * 10 + usize::from(byte - b'0'));
                let Some(slot) = range.numbers.get_mut(number) else { continue };
                let registers = &mut self.registers;
                return Some(Symbol::Reg(*slot.get_or_insert_with(|| {
                    registers.push(range.class);
                    Reg(registers.len() as u32 - 1)
                })));
            }
            if let Some(&symbol) = scope.names.get(name) {
                return Some(symbol);
            }
            if scope.function {
                return None;
            }
        }
        None
    }

    /// Declares a label at a block. Returns false if the scope already has it.
    pub fn label(&mut self, name: &'t [u8], block: u32) -> bool {
        self.declared_names += 1;
        self.innermost().labels.insert(name, block).is_none()
    }

    /// Records a reference to a label, which may be declared later.
    pub fn refer(&mut self, name: &'t [u8], place: TextPosition) -> LabelRef {
        let reference = self.targets.len();
        self.targets.push(None);
        self.names.push((name, place));
        self.innermost().pending.push((name, reference));
        reference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_names_hide_outer_ones() {
        let mut scopes = Scopes::new();
        scopes.declare_range(b"%r", 3, Class::B32).unwrap();
        scopes.declare_register(b"low", Class::B16).unwrap();
        let outer = scopes.find(b"low").unwrap();
        let r2 = scopes.find(b"%r2").unwrap();
        scopes.open();
        scopes.declare_register(b"low", Class::B32).unwrap();
        assert_ne!(scopes.find(b"low"), Some(outer));
        assert_eq!(scopes.find(b"%r2"), Some(r2));
        scopes.close();
        assert_eq!(scopes.find(b"low"), Some(outer));
        assert_eq!(scopes.find(b"%r3"), None);
        assert_eq!(scopes.find(b"%r02"), None);
        assert_eq!(scopes.find(b"%r99999999999999999999"), None);
        assert_eq!(scopes.declare_register(b"low", Class::B16), Err(DeclareError::Twice));
    }

    #[test]
    fn prefixes_may_end_in_digits() {
        let mut scopes = Scopes::new();
        scopes.declare_range(b"%r", 4, Class::B32).unwrap();
        scopes.declare_range(b"%r1", 4, Class::B64).unwrap();
        let Some(Symbol::Reg(reg)) = scopes.find(b"%r13") else { panic!() };
        assert_eq!(scopes.class(reg), Class::B64);
    }

    #[test]
    fn labels_are_of_the_innermost_scope_that_has_them() {
        let mut scopes = Scopes::new();
        scopes.label(b"L", 1);
        scopes.open();
        let inner = scopes.refer(b"L", (0, 1));
        let outer = scopes.refer(b"M", (0, 1));
        scopes.label(b"L", 2);
        scopes.close();
        let first = scopes.refer(b"L", (0, 1));
        scopes.label(b"M", 3);
        let (_, targets) = scopes.finish().unwrap();
        assert_eq!((targets[inner], targets[outer], targets[first]), (2, 3, 1));
    }

    #[test]
    fn registers_are_counted() {
        let mut scopes = Scopes::new();
        assert_eq!(scopes.declare_range(b"%r", u64::MAX, Class::B32), Err(DeclareError::TooMany));
    }
}
