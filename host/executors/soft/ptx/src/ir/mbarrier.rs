//! State of an `mbarrier` object, which the PTX ISA leaves opaque: 64 bits in shared memory.
//!
//! From the lowest bit: the arrivals that the current phase still waits for and those that each phase expects
//! (20 bits each), the transactions that the current phase still waits for (21 bits, signed), and the number
//! of the phase modulo 8.

const COUNT_BITS: u32 = 20;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const TX_SHIFT: u32 = 2 * COUNT_BITS;

/// Position of the lowest bit of the number of the phase, which is its parity.
pub const PHASE_SHIFT: u32 = 61;
/// Mask of the arrivals that the current phase still waits for.
pub const PENDING: u64 = COUNT;
/// The state of a new object is the product of this number and the expected arrivals.
pub const INITIAL: u64 = 1 | 1 << COUNT_BITS;
/// Flag beside the number of arrivals of [`arrive`]: they are not expected in later phases either.
pub const DROP: u64 = 1 << 32;

/// Returns the state after `arrivals`, which [`DROP`] may accompany, and a change of the awaited transactions
/// by `tx`. The phase completes when it waits for neither.
#[must_use]
pub const fn arrive(state: u64, arrivals: u64, tx: u64) -> u64 {
    let arrived = arrivals & COUNT;
    let pending = (state & COUNT).saturating_sub(arrived);
    let dropped = if arrivals & DROP == 0 { 0 } else { arrived };
    let expected = (state >> COUNT_BITS & COUNT).saturating_sub(dropped);
    let tx_mask = (1 << (PHASE_SHIFT - TX_SHIFT)) - 1;
    let tx = (state >> TX_SHIFT).wrapping_add(tx) & tx_mask;
    let phase = state >> PHASE_SHIFT;
    if pending == 0 && tx == 0 {
        return (expected * INITIAL) | phase.wrapping_add(1) << PHASE_SHIFT;
    }
    pending | expected << COUNT_BITS | tx << TX_SHIFT | phase << PHASE_SHIFT
}
