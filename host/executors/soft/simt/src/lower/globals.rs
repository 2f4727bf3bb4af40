//! Device addresses of a module's variables, and the record of which ones a kernel depends on.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// Device addresses of a module's variables while a kernel is lowered. Addresses that lowering reads become
/// constants of the program, which is then valid only for sessions with the same addresses.
#[derive(Debug)]
pub(crate) struct Globals<'a> {
    addresses: &'a [u64],
    used: RefCell<BTreeSet<u32>>,
}

impl<'a> Globals<'a> {
    /// Wraps the addresses of all variables; none of them counts as used yet.
    pub(crate) fn new(addresses: &'a [u64]) -> Self {
        Self { addresses, used: RefCell::default() }
    }

    /// Returns the address of the variable `index`, or `None` if there is no such variable, and records that
    /// the program depends on it.
    pub(super) fn get(&self, index: u32) -> Option<u64> {
        let address = self.addresses.get(index as usize).copied()?;
        self.used.borrow_mut().insert(index);
        Some(address)
    }

    /// Returns the indices and addresses of the variables that lowering has read.
    pub(crate) fn used(&self) -> Box<[(u32, u64)]> {
        let used = self.used.borrow();
        used.iter().map(|&index| (index, self.addresses[index as usize])).collect()
    }
}
