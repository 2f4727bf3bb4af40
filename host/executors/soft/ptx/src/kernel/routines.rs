//! What is known of the functions that have a body of their own in a kernel, and of the calls of them.

use std::collections::{HashMap, HashSet};

use crate::ir::{Class, Reg};
use crate::lex::Place;

/// The most bytes of a thread's local memory, which is CUDA's limit.
pub const LOCAL_MOST: u64 = 512 << 10;
/// The most functions with bodies of their own in a kernel, and the most calls that go to them.
pub const ROUTINES_MOST: u64 = 1 << 10;
pub const SITES_MOST: u64 = 1 << 12;
/// Bytes of a frame before its variables: where the function returns to.
pub const LINK: u64 = 8;

/// A function: its name, the place of its text and its address.
pub type Target<'t> = (&'t [u8], Place, u64);

/// What passes from a call to a function, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A parameter.
    Param,
    /// The address of a parameter in memory.
    ParamAddress,
    /// A result.
    Result,
    /// The address of the memory of a result.
    ResultAddress,
}

/// A function with a body of its own.
#[derive(Clone, Debug)]
pub struct Routine<'t> {
    pub name: &'t [u8],
    pub place: Place,
    /// Its first block, and the one behind its last.
    pub start: u32,
    pub end: u32,
    /// Bytes of its frame: the variables.
    pub bytes: u64,
    pub align: u64,
}

/// The functions that a call may reach.
#[derive(Clone, Debug)]
pub enum Reach {
    /// One.
    Routine(usize),
    /// That at the address in the register. Addresses ascend.
    Address(Reg, Vec<(u64, usize)>),
}

/// A call.
#[derive(Clone, Debug)]
pub struct Site {
    /// The routine in whose text it is; `None`: in the kernel's own.
    pub caller: Option<usize>,
    pub reach: Reach,
}

impl Site {
    /// The routines that the call may reach.
    pub fn reached(&self) -> impl Iterator<Item = usize> {
        let (one, many) = match &self.reach {
            Reach::Routine(routine) => (Some(*routine), &[][..]),
            Reach::Address(_, list) => (None, &list[..]),
        };
        one.into_iter().chain(many.iter().map(|&(_, routine)| routine))
    }
}

/// All functions of a kernel that have bodies of their own, and the calls of them.
#[derive(Clone, Debug, Default)]
pub struct Routines<'t> {
    pub list: Vec<Routine<'t>>,
    pub index: HashMap<&'t [u8], usize>,
    pub sites: Vec<Site>,
    /// The functions of the module whose address is taken, once a call has asked for them.
    pub taken: Option<Vec<Target<'t>>>,
    pub transfers: HashMap<(Role, usize, Class), Reg>,
    /// The registers of `transfers`.
    pub passing: HashSet<Reg>,
    /// Registers that hold the offset of the frame in local memory, and the number of a call.
    pub frame: Option<Reg>,
    pub link: Option<Reg>,
    /// The routine whose body is being read.
    pub current: Option<usize>,
}

impl Routines<'_> {
    /// Whether a register passes parameters or results.
    pub fn is_transfer(&self, reg: Reg) -> bool {
        self.passing.contains(&reg) || self.link == Some(reg)
    }

    /// How many blocks calls and returns become, at most.
    pub fn blocks(&self) -> u64 {
        let jumps = self.sites.iter().map(|site| match &site.reach {
            Reach::Routine(_) => 4,
            Reach::Address(_, list) => 4 + 4 * list.len() as u64,
        });
        jumps.sum::<u64>() + 4 * self.list.len() as u64
    }
}
