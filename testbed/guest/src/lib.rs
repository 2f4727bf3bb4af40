//! A real guest: a virtual machine of an unpatched QEMU whose kernel enumerates VGPU-STUB as a PCI device.
//!
//! ```text
//!  vgpu-testbed guest            QEMU                                    vgpu-testbed device
//!  ─────────────────             ────                                    ───────────────────
//!  vm: kernel, initramfs ──────► guest: init = the agent
//!  vm: requests, output  ◄─────► virtio-serial port
//!                                vfio-user-pci ── socket ──────────────► config space, BAR0 (each access)
//!                                BAR2, mapped  ◄─ one memory file ─────► the device's window
//!  virtiofsd: shared folders ──► virtiofs
//! ```
//!
//! [`vm`] starts machines, and [`agent`] is what runs in them and how it is talked to. The device's side of
//! the socket is the crate `vgpu-vfio-user`.

#![forbid(unsafe_code)]

pub mod agent;
pub mod vm;
