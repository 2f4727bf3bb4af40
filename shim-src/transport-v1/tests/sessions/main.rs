//! Tests of sessions on devices of version 1: the real device model in this process, shared with other
//! guests.

mod conformance;
mod killed;
mod old_guests;
mod roles;
mod version1;
