//! One worker process for each session of an executor, whatever executor that is. CUDA calls a process lost
//! after an illegal access, and a context is no wall: so each session's calls run in a process of their own,
//! which is confined, and whose death ends that session alone.
//!
//! ```text
//!  device's process                                   worker process, one a session
//!  ────────────────                                   ─────────────────────────────
//!  guest's ring ─► dispatch: every check              Reader ─► carry ─► Session of an executor
//!                    └► WorkerSession ─► Producer ─ ring ─┘                └► SessionHost: replies, marks
//!
//!  status ◄───────────── Link ◄───────── board ◄──────── progress
//!                          └ keeper ◄─── socket ◄─────── records: memory, what is given back, the end
//!                          └──────────── socket ───────► control: files, releases, stop
//! ```
//!
//! **The device's process consumes the guest's ring.** It copies each message to private memory, checks it,
//! and passes it on as it came, through a ring in a sealed memory file that the guest never sees. It answers
//! itself what concerns the session alone: greetings, echoes, window memory, guest pages, and how much memory
//! is free. A worker is started by the first message that needs an executor, so a process that attaches to
//! look starts none.
//!
//! **What the worker writes is not believed either.** It says how far it has come in the board, words of
//! shared memory that are read one at a time and checked; all else it says in packets of a socket, which the
//! kernel copies, so that they cannot change while they are read. Packets that make no sense end the session.
//!
//! **The worker can touch what is its session's**: the channel's area, the ranges of the window and the guest
//! pages that the session was granted, each for as long as it is granted. A GPU's kernel may reach all that
//! is mapped in its process. Replies, marks and late errors the worker stores in the return area itself, and
//! so can a GPU.
//!
//! Device memory of all sessions is charged against the device's memory before an allocation is passed on
//! ([`WorkerExecutor`]).
//!
//! The modules `device` and `worker` are the two processes' halves; `shared` is what they say to each other.
//! `unsafe` is in `worker::mapped` alone.

#![deny(unsafe_code)]

mod device;
mod shared;
mod worker;

pub use device::executor::{WorkerConfig, WorkerError, WorkerExecutor};
pub use worker::run::main;
