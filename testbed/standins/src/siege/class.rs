//! Classes of hostile programs.

use clap::ValueEnum;

/// Class of a hostile program, named after its attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Class {
    /// Launches an empty kernel with the maximum number of blocks.
    EndlessGrid,
    /// Launches a kernel with an infinite loop.
    EndlessLoop,
    /// Launches a kernel that is a long sequence of pauses.
    Nanosleep,
    /// Requests products of the maximum number of matrices.
    Products,
    /// Copies and fills the largest possible memory, with rows as narrow as possible.
    Copies,
    /// Launches a graph of infinite kernels.
    EndlessGraph,
    /// Loads PTX with registers that are live across barriers.
    Registers,
    /// Loads PTX that writes many halves of words.
    Slots,
    /// Queues work behind a stream that a host function blocks, until no more is accepted.
    HeldStream,
    /// Allocates blocks of 4 KiB until one is refused, frees all of them, and starts again.
    Allocations,
    /// Launches kernels with the maximum local memory of a thread.
    LocalMemory,
    /// Launches cooperative grids of the maximum number of blocks.
    Cooperative,
    /// Creates as many streams, events, modules, functions, and graphs as possible.
    Handles,
    /// Launches kernels that print in an infinite loop.
    Printf,
    /// Submits work and is killed while the device executes it.
    Killed,
    /// Exits while the device executes its work. The device must end the session of a process that is gone.
    Exits,
    /// Sends messages with random bodies and writes random bytes to the ring. For version 2 devices.
    Messages,
}
