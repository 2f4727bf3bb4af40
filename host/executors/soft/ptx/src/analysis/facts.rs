//! What an analysis assumes of a kernel's launches, and what it finds out.

use super::sets::RegSet;

/// What an analysis may assume of the launches of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Assume {
    /// All lanes of a warp have the same `%tid.y` and `%tid.z`, as where `blockDim.x` is a multiple of 32.
    pub tid_yz_uniform: bool,
}

/// What holds for a kernel. The [module](super) says why.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// Registers that need one value for the whole warp.
    pub uniform: RegSet,
    /// Registers of which some write must keep the values of lanes that do not take part. None of them is
    /// uniform.
    pub blend: RegSet,
    /// By block: whether its terminator sends all lanes the same way.
    pub uniform_branch: Vec<bool>,
    /// By block: registers that are read after its start before they are written.
    pub live_in: Vec<RegSet>,
    /// By block: registers that are live in at a successor.
    pub live_out: Vec<RegSet>,
    /// By block: registers that are read later by lanes that may wait while the block runs. A write in the
    /// block must keep the values that such a register has in these lanes.
    pub waiting: Vec<RegSet>,
}
