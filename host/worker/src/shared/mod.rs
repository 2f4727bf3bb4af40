//! The protocol between the device's process and a worker: its number, the setup, frames of the ring, words of
//! the status page, packets of the socket.

pub(crate) mod frame;
pub(crate) mod packet;
pub(crate) mod protocol;
pub(crate) mod report;
pub(crate) mod setup;
pub(crate) mod status_page;
