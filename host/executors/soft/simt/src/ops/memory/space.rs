//! Interface of the state spaces for loads and stores.

use crate::machine::{Frame, Inst, Isa, LaneType, Slot};

use super::address::{Access, Failed};
use super::element::{Elements, Extend, Truncate};

/// Maximum number of active lanes that are loaded and stored one by one.
pub(super) const FEW: u32 = 12;
/// Number of lanes up to which loading one by one takes no longer than loading all lanes together.
pub(super) const FEWER: u32 = 4;

/// A state space of PTX, as loads and stores access it.
pub(crate) trait Space: 'static {
    /// Type of the register that holds an address: 32 bits if addresses start at 0, otherwise 64 bits.
    type Address: LaneType + Into<u64>;

    /// Loads the lanes of `mask`. The elements of other lanes in `out` stay unchanged. Fails if an address is
    /// refused, which ends the launch.
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        access: &mut Access<'_, '_>,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed>;

    /// Returns the base address of a lane, or the one that all lanes share if `lane` is `None`.
    #[inline(always)]
    fn base(frame: &Frame, inst: &Inst, lane: Option<usize>) -> u64 {
        lane.map_or_else(
            || frame.get::<Self::Address>(inst.a),
            |lane| frame.vector::<Self::Address>(inst.a)[lane],
        )
        .into()
    }

    /// Loads the elements of one lane, whose base address is given.
    fn load_lane<E: Extend, const N: usize>(
        access: &mut Access<'_, '_>,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed>;

    /// Loads the first `L` lanes into registers, eight lanes at a time. Returns false, without having loaded
    /// anything, if that is not possible.
    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize, const L: usize>(
        _: &mut Access<'_, '_>,
        _: &[Slot; N],
    ) -> bool {
        false
    }

    /// Stores the lanes of `mask`. Fails if an address is refused, which ends the launch.
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        access: &mut Access<'_, '_>,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed>;
}
