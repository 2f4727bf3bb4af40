//! The device plugin beside a played kubelet, a stand-in for systemd, the real `vgpu-device`, and a libcuda
//! that records.

mod deployment;
mod kubelet;
mod lifetime;
mod node;
mod refusals;
mod restarts;
mod wire;
