//! Assumptions of an analysis about a kernel's launches, and its results.

use super::sets::RegSet;

/// Assumptions that an analysis may make about the launches of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Assume {
    /// All lanes of a warp have the same `%tid.y` and `%tid.z`. This holds if `blockDim.x` is a multiple of
    /// 32.
    pub tid_yz_uniform: bool,
}

/// Results of the analysis of a kernel. The [module](super) proves them.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// Registers of which the whole warp needs only one value.
    pub uniform: RegSet,
    /// Registers of which some write must preserve the values of lanes that do not take part. None of them is
    /// uniform.
    pub blend: RegSet,
    /// Indexed by block: whether its terminator cannot diverge, because its predicate is uniform or it has
    /// one successor.
    pub uniform_branch: Vec<bool>,
    /// Indexed by block: registers that are read after its start before they are written.
    pub live_in: Vec<RegSet>,
    /// Indexed by block: registers that are live at the start of one of its successors.
    pub live_out: Vec<RegSet>,
    /// Indexed by block: registers that are read later by lanes that may wait while the block runs. A write
    /// in the block must preserve the values that such a register has in these lanes.
    pub waiting: Vec<RegSet>,
}
