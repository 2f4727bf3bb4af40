//! Ways to be hostile.

use clap::ValueEnum;

/// Ways to be hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Class {
    /// An empty kernel with as many blocks as there can be.
    EndlessGrid,
    /// A kernel that branches back for ever.
    EndlessLoop,
    /// A straight line of pauses.
    Nanosleep,
    /// A product of as many matrices as there can be.
    Products,
    /// Copies and fills of all the memory that can be had, and of rows as narrow as can be.
    Copies,
    /// A graph of endless kernels.
    EndlessGraph,
    /// PTX whose registers live across barriers.
    Registers,
    /// PTX that writes many halves of words.
    Slots,
    /// Work behind a stream that a function of the host holds, until no more is taken.
    HeldStream,
    /// Allocations of 4 KiB, until one is refused; then all are freed, and it starts again.
    Allocations,
    /// Kernels whose threads have as much local memory as they can.
    LocalMemory,
    /// Cooperative launches of as many blocks as can be.
    Cooperative,
    /// Streams, events, modules, functions, and graphs, as many as there are.
    Handles,
    /// Kernels that print without end.
    Printf,
    /// Gets work done and is killed in the midst of it.
    Killed,
    /// Exits in the midst of work: the device ends the session when the process is gone.
    Exits,
    /// Messages with random bodies, and random bytes in the ring. For devices of version 2.
    Messages,
}
