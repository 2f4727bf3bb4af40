//! The functions with a separate body in a kernel (routines), and their calls.

use std::collections::{HashMap, HashSet};

use crate::ir::{Class, Reg};
use crate::lex::TextPosition;

/// Largest size of a thread's local memory in bytes, which is CUDA's limit.
pub const LOCAL_MOST: u64 = 512 << 10;
/// Largest number of functions with separate bodies in a kernel, and of their calls.
pub const ROUTINES_MOST: u64 = 1 << 10;
pub const SITES_MOST: u64 = 1 << 12;
/// Size in bytes of the return address at the start of a frame.
pub const LINK: u64 = 8;

/// A function: its name, the position of its declaration and its address.
pub type Callee<'t> = (&'t [u8], TextPosition, u64);

/// Kind of value that passes between a call and a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The value of a parameter passes from the call to the function.
    Param,
    /// The address of a parameter in memory.
    ParamAddress,
    /// The value of a result passes from the function to the call.
    Result,
    /// The address of the memory of a result.
    ResultAddress,
}

/// Function with a separate body, which all calls in the kernel share.
#[derive(Clone, Debug)]
pub struct Routine<'t> {
    pub name: &'t [u8],
    pub place: TextPosition,
    /// First block. `end` is the block after the last one.
    pub start: u32,
    pub end: u32,
    /// Size of the variables in the frame, in bytes, with the return address.
    pub bytes: u64,
    pub align: u64,
}

/// Functions that a call may reach.
#[derive(Clone, Debug)]
pub enum Reach {
    /// The call reaches exactly one function.
    Routine(usize),
    /// The function at the address in the register. Addresses are in ascending order.
    Address(Reg, Vec<(u64, usize)>),
}

/// Call site of a function with a separate body.
#[derive(Clone, Debug)]
pub struct Site {
    /// Routine that contains the call, or `None` for the kernel itself.
    pub caller: Option<usize>,
    pub reach: Reach,
}

impl Site {
    /// Returns the routines that the call may reach.
    pub fn reached(&self) -> impl Iterator<Item = usize> {
        let (one, many) = match &self.reach {
            Reach::Routine(routine) => (Some(*routine), &[][..]),
            Reach::Address(_, list) => (None, &list[..]),
        };
        one.into_iter().chain(many.iter().map(|&(_, routine)| routine))
    }
}

/// All functions of a kernel with separate bodies, and their calls.
#[derive(Clone, Debug, Default)]
pub struct Routines<'t> {
    pub list: Vec<Routine<'t>>,
    pub index: HashMap<&'t [u8], usize>,
    pub sites: Vec<Site>,
    /// Functions of the module whose address is taken, once a call has needed them.
    pub taken: Option<Vec<Callee<'t>>>,
    pub transfers: HashMap<(Role, usize, Class), Reg>,
    /// All registers of `transfers`, for look-ups.
    pub passing: HashSet<Reg>,
    /// Registers that hold the offset of the frame in local memory, and the number of a call, which is its
    /// return address.
    pub frame: Option<Reg>,
    pub link: Option<Reg>,
    /// Routine whose body is being parsed.
    pub current: Option<usize>,
}

impl Routines<'_> {
    /// Returns whether a register passes parameters or results.
    pub fn is_transfer(&self, reg: Reg) -> bool {
        self.passing.contains(&reg) || self.link == Some(reg)
    }

    /// Returns an upper bound of the number of blocks that calls and returns become.
    pub fn blocks(&self) -> u64 {
        let jumps = self.sites.iter().map(|site| match &site.reach {
            Reach::Routine(_) => 4,
            Reach::Address(_, list) => 4 + 4 * list.len() as u64,
        });
        jumps.sum::<u64>() + 4 * self.list.len() as u64
    }
}
