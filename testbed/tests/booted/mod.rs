//! Tests that boot a virtual machine and then work in it for a minute or more. The harness starts tests in
//! the order of their names, so these start early and others run beside them.

mod guest;
mod reload;
mod systemd;
