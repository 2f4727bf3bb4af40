//! The addresses of a module's variables, and which of them a kernel depends on.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// The device addresses of a module's variables while a kernel is lowered. They become constants of the program, so
/// those that were asked for decide for which sessions the program is right.
#[derive(Debug)]
pub(crate) struct Globals<'a> {
    addresses: &'a [u64],
    used: RefCell<BTreeSet<u32>>,
}

impl<'a> Globals<'a> {
    /// Addresses of which none was asked for.
    pub(crate) fn new(addresses: &'a [u64]) -> Self {
        Self { addresses, used: RefCell::default() }
    }

    /// The address of the variable `index`, if there is one.
    pub(super) fn get(&self, index: u32) -> Option<u64> {
        let address = self.addresses.get(index as usize).copied()?;
        self.used.borrow_mut().insert(index);
        Some(address)
    }

    /// The variables that were asked for, by index, with their addresses.
    pub(crate) fn used(&self) -> Box<[(u32, u64)]> {
        let used = self.used.borrow();
        used.iter().map(|&index| (index, self.addresses[index as usize])).collect()
    }
}
