//! Addresses of a module's variables, and which of them a kernel depends on.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// Device addresses of a module's variables while a kernel is lowered. Those that lowering asks for become
/// constants of the program, which is only valid for sessions with the same addresses.
#[derive(Debug)]
pub(crate) struct Globals<'a> {
    addresses: &'a [u64],
    used: RefCell<BTreeSet<u32>>,
}

impl<'a> Globals<'a> {
    /// Wraps addresses of which none has been asked for yet.
    pub(crate) fn new(addresses: &'a [u64]) -> Self {
        Self { addresses, used: RefCell::default() }
    }

    /// Returns the address of the variable `index`, or `None` if there is no such variable. The program
    /// depends on it from now on.
    pub(super) fn get(&self, index: u32) -> Option<u64> {
        let address = self.addresses.get(index as usize).copied()?;
        self.used.borrow_mut().insert(index);
        Some(address)
    }

    /// Returns the variables that were asked for, by index, with their addresses.
    pub(crate) fn used(&self) -> Box<[(u32, u64)]> {
        let used = self.used.borrow();
        used.iter().map(|&index| (index, self.addresses[index as usize])).collect()
    }
}
