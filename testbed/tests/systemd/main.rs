//! Services under a real systemd: Debian's, with udev, as the first process of a PID namespace in a booted
//! guest. Its root is a tree in memory; devices, sysfs and udev's events are the guest's own.

mod check;
mod device;
mod guest;
mod service;
