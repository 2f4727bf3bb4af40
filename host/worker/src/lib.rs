//! Runs each session of an executor in a worker process of its own. CUDA calls a process lost after an
//! illegal access, and a context is no wall. So each session's calls run in a confined process, whose death
//! ends only that session.
//!
//! ```text
//!  device's process                                   worker process, one a session
//!  ────────────────                                   ─────────────────────────────
//!  guest's ring ─► dispatch: every check              RingReader ─► carry ─► Session of an executor
//!                    └► WorkerSession ─► RingWriter ─ ring ─┘                  └► SessionHost: replies, marks
//!
//!  status ◄─────── WorkerProcess ◄──── status page ◄──── progress
//!                    └ supervisor ◄─── socket ◄───────── Reporter: memory, retired memory, the end
//!                    └──────────────── socket ─────────► control: files, stop
//! ```
//!
//! **The device's process consumes the guest's ring.** It copies each message to private memory, checks it,
//! and forwards it unchanged, through a ring in a sealed memory file that the guest never sees. It answers
//! messages that concern only the session itself: greetings, echoes, window memory, guest pages, and the
//! amount of free memory. The first message that needs an executor starts the worker, so that a process that
//! attaches to look starts none.
//!
//! **The worker is not trusted either.** It shows its progress on the status page, whose words are read one
//! at a time and checked. Everything else arrives in packets of a socket. The kernel copies those, so that
//! they cannot change while they are read. A bad packet ends the session.
//!
//! **A worker can access what its session owns**: the channel's area, and the ranges of the window and the
//! guest pages that the session was granted, each for as long as it is granted. A GPU's kernel may access
//! everything that is mapped in its process. The worker, or its GPU, stores replies, marks and late errors in
//! the return area directly.
//!
//! **A worker outlives the program of the device's process.** It speaks the protocol that it was started with.
//! The next program takes over ring, status page and socket, and waits for the process, which stays its child.
//!
//! Device memory is reserved from the device's pool before an allocation is forwarded ([`WorkerExecutor`]).
//!
//! The modules `device` and `worker` are the halves of the two processes; `shared` is their protocol. The
//! only `unsafe` code is in `worker::window_mapping`, and in `worker::explain`, which is for diagnosis.

#![deny(unsafe_code)]

mod device;
mod shared;
mod worker;

pub use device::executor::{WorkerConfig, WorkerError, WorkerExecutor};
pub use device::process_watch::{ProcessWatch, Watched};
pub use device::worker_lock::WorkerLock;
pub use worker::confine::confine_process;
pub use worker::life::main;
