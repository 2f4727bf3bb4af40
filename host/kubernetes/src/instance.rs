//! One device of a node: the instance of `vgpu-device` that serves it, with its configuration, its directory
//! and its sockets.
//!
//! ```text
//!  /etc/vgpu-device/NAME.toml          its settings, which vgpu-device@NAME.service reads
//!  /run/vgpu-device/NAME/control       its control socket, which no container sees
//!  /run/vgpu-device/NAME/vm/device     where the VM connects; `vm` is mounted into the container
//! ```

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use vgpu_paths::Dir;
use vgpu_share::GpuUuid;

use crate::config::{Config, Profile};
use crate::error::PluginError;

/// First words of each configuration that the plugin has written.
pub(crate) const MARK: &str = "# Written by vgpu-device-plugin";
/// Prefix of the names of the plugin's instances.
pub(crate) const PREFIX: &str = "k8s-";
/// Time in which an instance answers a question.
const ANSWER_MOST: Duration = Duration::from_secs(2);
/// Maximum length of the answer in bytes, as `vgpu-device status` accepts it.
const ANSWER_BYTES: u64 = 16 << 20;
/// Number of tries to make the directories of an instance.
const TRIES: usize = 10;
/// Mode of the directories. The sockets' own modes say who may connect.
const MODE: u32 = 0o755;

/// Directories of the host.
#[derive(Clone, Debug)]
pub(crate) struct HostFolders {
    /// Directory of the instances' configurations.
    pub(crate) configurations: PathBuf,
    /// Directory of the instances' directories.
    pub(crate) runtime: PathBuf,
}

/// A device of a node.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// Name, which is the unit's instance and the device's id.
    pub(crate) name: String,
    /// Number of its profile, or `None` if the file of profiles has it no more.
    pub(crate) profile: Option<usize>,
    pub(crate) gpu: GpuUuid,
    /// Bytes that its VM is promised.
    pub(crate) memory: u64,
    folders: HostFolders,
}

/// What an instance has answered.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Answer {
    /// Whether a VM is connected.
    #[serde(default)]
    pub(crate) connected: Option<bool>,
}

impl Instance {
    pub(crate) fn new(
        folders: &HostFolders,
        number: usize,
        profile: &Profile,
        gpu: GpuUuid,
        index: u32,
    ) -> Self {
        // The first digits of the GPU's UUID: the name stays the device's when the driver counts anew.
        let digits = gpu.to_string().chars().skip("GPU-".len()).take(8).collect::<String>();
        let name = format!("{PREFIX}{}-{digits}-{index}", profile.name);
        Self { name, profile: Some(number), gpu, memory: profile.memory.0, folders: folders.clone() }
    }

    /// Returns the instance of a configuration that the plugin has written for a profile that is gone.
    pub(crate) fn retired(folders: &HostFolders, name: String) -> Self {
        Self { name, profile: None, gpu: GpuUuid([0; 16]), memory: 0, folders: folders.clone() }
    }

    /// Returns the directory that the container sees, under the same path.
    pub(crate) fn shown(&self) -> PathBuf {
        self.folder().join("vm")
    }

    /// Returns the socket to which the VM connects.
    pub(crate) fn socket(&self) -> PathBuf {
        self.shown().join("device")
    }

    pub(crate) fn configuration(&self) -> PathBuf {
        self.folders.configurations.join(format!("{}.toml", self.name))
    }

    fn folder(&self) -> PathBuf {
        self.folders.runtime.join(&self.name)
    }

    /// Writes the configuration and makes the directories, which systemd removes with an instance. Only for
    /// an instance that is about to be started: a running one that crashes starts again with what is in the
    /// file, and its VM keeps what it was promised.
    pub(crate) fn prepare(&self, config: &Config) -> Result<(), PluginError> {
        self.configure(config)?;
        let mut made = self.make_folders();
        for _ in 1..TRIES {
            // systemd may be removing the directory of the instance before, with what is in it.
            if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                made = self.make_folders();
            }
        }
        made.map_err(|source| self.failed("make the directory", &self.shown(), source))
    }

    fn make_folders(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).create(self.shown())?;
        for folder in [self.folder(), self.shown()] {
            // Whatever the umask is.
            fs::set_permissions(folder, Permissions::from_mode(MODE))?;
        }
        Ok(())
    }

    /// Writes the configuration, unless it is there.
    fn configure(&self, config: &Config) -> Result<(), PluginError> {
        let Some(profile) = self.profile.map(|number| &config.profiles[number]) else { return Ok(()) };
        let path = self.configuration();
        let text = self.text(config, profile);
        let same = vgpu_paths::read_to_string(&path, ANSWER_BYTES).is_ok_and(|there| there == text);
        if !same {
            let written = Dir::open(&self.folders.configurations)
                .and_then(|dir| dir.replace(format!("{}.toml", self.name), text.as_bytes()));
            written.map_err(|source| self.failed("write the configuration", &path, source))?;
        }
        Ok(())
    }

    /// Removes the configuration.
    pub(crate) fn forget(&self) -> Result<(), PluginError> {
        let path = self.configuration();
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove the configuration", &path, source))
            }
            _ => Ok(()),
        }
    }

    fn text(&self, config: &Config, profile: &Profile) -> String {
        let mut settings = config.settings.clone();
        let mut set = |name: &str, value: toml::Value| drop(settings.insert(name.to_owned(), value));
        set("bus", format!("vfio-user:{}", self.socket().display()).into());
        set("gpu", self.gpu.to_string().into());
        set("memory", size(profile.memory.0).into());
        set("weight", i64::from(profile.weight).into());
        if let Some(memory) = profile.vm_memory {
            set("vm-memory", size(memory.0).into());
        }
        format!("{MARK} for profile {}. Changes are lost.\n{settings}", profile.name)
    }

    fn failed(&self, doing: &'static str, path: &Path, source: io::Error) -> PluginError {
        PluginError::File { doing, device: self.name.clone(), path: path.to_owned(), source }
    }

    /// Asks the instance for its state, and looks whether its VM's socket is there.
    ///
    /// # Errors
    /// Returns why a VM could not use it, in words.
    pub(crate) async fn ask(&self) -> Result<Answer, String> {
        let socket = self.socket();
        match fs::symlink_metadata(&socket) {
            Ok(found) if found.file_type().is_socket() => {}
            Ok(_) => return Err(format!("{} is no socket", socket.display())),
            Err(error) => return Err(format!("{}: {error}", socket.display())),
        }
        let control = self.folder().join("control");
        match tokio::time::timeout(ANSWER_MOST, status(&control)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(format!("{}: {error}", control.display())),
            Err(_) => {
                Err(format!("{}: it has not answered for {} s", control.display(), ANSWER_MOST.as_secs()))
            }
        }
    }
}

/// Asks for the state at a control socket.
async fn status(control: &Path) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(control).await?;
    stream.write_all(b"{\"cmd\":\"status\"}\n").await?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_BYTES)).read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}

/// Spells a size for the configuration.
fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{}M", bytes >> 20) } else { bytes.to_string() }
}
