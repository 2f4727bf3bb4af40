//! What the device's process and a worker say to each other: the setup, frames of the ring, words of the
//! board, packets of the socket.

pub(crate) mod board;
pub(crate) mod frame;
pub(crate) mod packet;
pub(crate) mod record;
pub(crate) mod setup;
