//! A device plugin for Kubernetes: gives the pods of a node devices of `vgpu-device`, for VMs that they run.
//!
//! Each profile of a file is a resource. The kubelet allocates its devices; the plugin has the host's systemd
//! run an instance of `vgpu-device@.service` for each device that a pod has. The plugin keeps no state: what
//! runs is systemd's to say, who has it the kubelet's, and what is promised the ledger's. So it can end and
//! start at any time, and the instances go on.
//!
//! ```text
//!  run ─► config, gpus: what the node has ─► ledger: whether it can be promised
//!   └─► pool: allocation, health, end ─► instance: configuration, directory, sockets
//!        │                           └─► units: systemd ─► command: within a container, of the host
//!        ├─► allocation: when an instance ends
//!        ├─► pods: who has what, from the kubelet
//!  registration, service: the kubelet's calls ─► api: its messages
//! ```

#![forbid(unsafe_code)]

mod allocation;
pub mod api;
mod command;
mod config;
mod error;
mod gpus;
mod instance;
mod ledger;
mod pods;
mod pool;
mod registration;
mod run;
mod service;
mod units;

pub use command::CommandError;
pub use config::{Config, Gpu, Profile, Size};
pub use error::{PluginError, RpcError};
pub use run::{Arguments, run};
