//! A real guest: a virtual machine of an unpatched QEMU whose kernel enumerates VGPU-STUB as a PCI device.
//!
//! ```text
//!  vgpu-testbed guest            QEMU                                    vgpu-testbed device
//!  ─────────────────             ────                                    ───────────────────
//!  vm: kernel, initramfs ──────► guest: init = the agent
//!  vm: requests, output  ◄─────► virtio-serial port
//!                                vfio-user-pci ── socket ──────────────► pci: config space, BAR0 (each access)
//!                                BAR2, mapped  ◄─ one memory file ─────► the device's window
//!  virtiofsd: shared folders ──► virtiofs
//! ```
//!
//! [`pci`] is the device's side, [`vm`] starts machines, [`agent`] is what runs in them and how it is talked to.

#![forbid(unsafe_code)]

pub mod agent;
pub mod pci;
pub mod vm;
