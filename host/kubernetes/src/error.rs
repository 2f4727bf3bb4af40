//! Why the plugin does not start, and why a device is not given to a pod.

use std::io;
use std::path::PathBuf;

use vgpu_share::{Promise, ShareError};

use crate::command::CommandError;

/// Failure of the plugin. Each names the profile, device or path that it is about.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The file of the profiles cannot be read.
    #[error("read the profiles in {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The file of the profiles is not understood. The parser's error names the line.
    #[error("understand the profiles in {}", path.display())]
    Parse {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A value of the file is impossible.
    #[error("{}: {what}", path.display())]
    Value {
        /// Path of the file.
        path: PathBuf,
        /// Place, value, and one that would do.
        what: String,
    },
    /// A command of the host failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// `vgpu-device gpus` printed something else.
    #[error("understand what `vgpu-device gpus` prints; is it of an older release?")]
    Gpus(#[source] serde_json::Error),
    /// The node does not have the GPU of a profile.
    #[error("profile {profile}: this node has no {gpu}; it has {found}")]
    NoGpu {
        /// Name of the profile.
        profile: String,
        /// The GPU that it names, or "GPU".
        gpu: String,
        /// The GPUs of the node.
        found: String,
    },
    /// The memory of the profiles does not fit what the GPU's ledger has left.
    #[error("{promise}; the profiles of {} need {needs}", path.display())]
    Room {
        /// Path of the file of the profiles.
        path: PathBuf,
        /// The profiles with their counts and sizes.
        needs: String,
        /// Who holds what.
        promise: Promise,
    },
    /// The ledger cannot be read.
    #[error("read what the devices of this host have been promised")]
    Ledger(#[from] ShareError),
    /// A file or directory of a device cannot be made.
    #[error("{doing} {} of device {device}", path.display())]
    File {
        /// What failed, as a verb with an article where it needs one.
        doing: &'static str,
        /// Name of the device.
        device: String,
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The kubelet asks for a device that the profile does not have.
    #[error("profile {profile} has no device {device:?}")]
    Unknown {
        /// Name of the profile.
        profile: String,
        /// Id of the device.
        device: String,
    },
    /// A container asks for several devices.
    // The kubelet appends: ", which is unexpected".
    #[error("a VM has one device, so ask for 1: this container asks for {count} of profile {profile}")]
    Several {
        /// Name of the profile.
        profile: String,
        /// Number of devices.
        count: usize,
    },
    /// An instance does not get ready.
    #[error("device {device} of profile {profile} for {pod} is not ready: {why}")]
    NotReady {
        /// Name of the profile.
        profile: String,
        /// Name of the device.
        device: String,
        /// Pod and container, or words for those that are not known yet.
        pod: String,
        /// Reason, if possible in the words of `vgpu-device`.
        why: String,
    },
    /// A socket of the plugin cannot be made.
    #[error("serve profile {profile} at {}", path.display())]
    Socket {
        /// Name of the profile.
        profile: String,
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The kubelet does not accept the registration.
    #[error("register profile {profile} with the kubelet at {}", path.display())]
    Register {
        /// Name of the profile.
        profile: String,
        /// Path of the kubelet's socket.
        path: PathBuf,
        /// Error of the transport or of the kubelet.
        #[source]
        source: RpcError,
    },
    /// The kubelet does not tell which pods have devices.
    #[error("ask the kubelet at {} which pods have devices", path.display())]
    Pods {
        /// Path of the kubelet's socket.
        path: PathBuf,
        /// Error of the transport or of the kubelet.
        #[source]
        source: RpcError,
    },
}

/// Failure of a call of the kubelet.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// Nobody can be reached by the socket.
    #[error("connect")]
    Connect(#[from] tonic::transport::Error),
    /// The call was refused.
    #[error("it answers {:?}: {}", .0.code(), .0.message())]
    Status(Box<tonic::Status>),
    /// There was no answer in time.
    #[error("it has not answered for {0} s")]
    Silent(u64),
}

impl From<tonic::Status> for RpcError {
    fn from(status: tonic::Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// Returns an error with its sources, as one sentence.
pub(crate) fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        // A transparent error repeats its source's words.
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    text.trim_end().to_owned()
}
