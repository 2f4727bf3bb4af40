//! What runs in the guest as its first process: it prepares the system ([`init`]) and runs commands that come
//! over a virtio-serial port ([`serve`]), as [`frame`] and [`message`] have it.

pub mod frame;
pub mod init;
pub mod loopback;
pub mod message;
pub mod serve;
