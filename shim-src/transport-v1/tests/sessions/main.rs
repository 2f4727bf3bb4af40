//! Sessions on devices of version 1: the real model of the device in this process, as other guests share it.

mod conformance;
mod killed;
mod old_guests;
mod roles;
mod version1;
