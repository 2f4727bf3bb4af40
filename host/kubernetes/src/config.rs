//! The file of profiles: which resources a node has, and how instances of `vgpu-device` are configured.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de};
use vgpu_device::{parse_bytes, parse_uuid};
use vgpu_share::GpuUuid;

use crate::error::PluginError;

/// Maximum size of the file in bytes.
const MOST: u64 = 1 << 20;
/// Maximum length of a profile's name. A device's id of at most 63 characters contains it.
const NAME_MOST: usize = 40;
/// Number of VMs that a GPU can have.
const COUNT_MOST: u32 = 64;
/// Settings of `vgpu-device serve` that the plugin makes from the profile.
const OWN_SETTINGS: [&str; 6] = ["bus", "control", "gpu", "memory", "vm-memory", "weight"];

/// What the file of profiles says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Part of the resources' names before the slash.
    #[serde(default = "domain")]
    pub domain: String,
    /// Command that runs its arguments as a command of the host, from within a container.
    #[serde(default)]
    pub host_command: Vec<String>,
    /// Device files of the host that a container gets with its device.
    #[serde(default = "kvm")]
    pub devices: Vec<PathBuf>,
    /// Settings of `vgpu-device serve` for all instances, by the names that they have in its file.
    #[serde(default)]
    pub settings: toml::Table,
    /// The resources.
    #[serde(default, rename = "profile")]
    pub profiles: Vec<Profile>,
}

/// A resource: instances of one size.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// Part of the resource's name after the slash.
    pub name: String,
    /// The GPU; each GPU of the node by default.
    #[serde(default)]
    pub gpu: Option<Gpu>,
    /// Memory that each VM is promised.
    pub memory: Size,
    /// Memory of the VM, for QEMU's arguments.
    #[serde(default)]
    pub vm_memory: Option<Size>,
    /// Share of the GPU's time relative to that of other VMs.
    #[serde(default = "one")]
    pub weight: u32,
    /// Number of instances on each of its GPUs.
    pub count: u32,
}

/// A size in bytes, as `vgpu-device` spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// UUID of a GPU or of a MIG instance, as NVIDIA's tools print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu(pub GpuUuid);

fn domain() -> String {
    "vgpu-run".to_owned()
}

fn kvm() -> Vec<PathBuf> {
    vec!["/dev/kvm".into()]
}

const fn one() -> u32 {
    1
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl de::Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size in quotation marks, such as \"8G\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        let wrong =
            || E::custom(format!("{text:?} is no size: expected a number with K, M, G or T, such as \"8G\""));
        parse_bytes(text).map(Size).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for Gpu {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let uuid = parse_uuid(text.strip_prefix("MIG-").unwrap_or(&text));
        let wrong =
            || de::Error::custom(format!("{text:?} is no UUID of a GPU, as `nvidia-smi -L` prints it"));
        uuid.map(|uuid| Self(GpuUuid(uuid))).ok_or_else(wrong)
    }
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// It cannot be read or understood, or a value is impossible: the error names it and one that would do.
    pub fn read(path: &Path) -> Result<Self, PluginError> {
        let text = vgpu_paths::read_to_string(path, MOST)
            .map_err(|source| PluginError::Read { path: path.to_owned(), source })?;
        let config: Self = toml::from_str(&text)
            .map_err(|source| PluginError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        config.check().map_err(|what| PluginError::Value { path: path.to_owned(), what })?;
        Ok(config)
    }

    /// Returns the name of a profile's resource.
    pub(crate) fn resource(&self, profile: &str) -> String {
        format!("{}/{profile}", self.domain)
    }

    /// Returns a setting of all instances that is a path.
    pub(crate) fn path_setting(&self, name: &str) -> Option<PathBuf> {
        self.settings.get(name).and_then(toml::Value::as_str).map(PathBuf::from)
    }

    fn check(&self) -> Result<(), String> {
        if !self.domain.split('.').all(is_label) || self.domain.len() > 253 || is_kubernetes(&self.domain) {
            return Err(format!(
                "domain = {:?} is no domain of extended resources: such as \"gpu.example.org\"",
                self.domain
            ));
        }
        if let Some(own) = OWN_SETTINGS.iter().find(|own| self.settings.contains_key(**own)) {
            return Err(format!("settings.{own}: the plugin sets it from the profile; remove it"));
        }
        if let Some((name, _)) = self.settings.iter().find(|(_, value)| value.is_table() || value.is_array())
        {
            return Err(format!("settings.{name}: `vgpu-device serve` has no setting with several values"));
        }
        if let Some(device) = self.devices.iter().find(|device| !device.is_absolute()) {
            return Err(format!("devices: {} is no absolute path, such as \"/dev/kvm\"", device.display()));
        }
        if self.profiles.is_empty() {
            return Err("there is no [[profile]], so that the node would have no resource".to_owned());
        }
        let mut names = BTreeSet::new();
        for Profile { name, memory, weight, count, .. } in &self.profiles {
            if !is_label(name) || name.len() > NAME_MOST {
                return Err(format!(
                    "profile {name:?}: a name has 1 to {NAME_MOST} of a-z, 0-9 and hyphens between them, \
                     such as \"8g\""
                ));
            }
            if !names.insert(name) {
                return Err(format!("profile {name:?} is there twice"));
            }
            if memory.0 == 0 {
                return Err(format!(
                    "profile {name:?}: memory = \"0\" can compute nothing, such as \"8G\" can"
                ));
            }
            if !(1..=1000).contains(weight) {
                return Err(format!("profile {name:?}: no VM has the weight {weight}: expected 1 to 1000"));
            }
            if !(1..=COUNT_MOST).contains(count) {
                return Err(format!(
                    "profile {name:?}: a GPU has 1 to {COUNT_MOST} VMs, not count = {count}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns whether Kubernetes keeps the domain for resources of its own.
fn is_kubernetes(domain: &str) -> bool {
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// Returns whether a name is a label of DNS (RFC 1123), in lower case.
fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let edges = name.bytes().next().is_some_and(inner) && name.bytes().next_back().is_some_and(inner);
    edges && name.len() <= 63 && name.bytes().all(|byte| inner(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profiles.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(&path).map_err(|error| crate::error::sentence(&error))
    }

    #[test]
    fn the_example_is_understood() {
        let config = read(include_str!("../../../packaging/kubernetes/base/profiles.toml")).unwrap();
        assert_eq!(config.resource(&config.profiles[0].name), "vgpu-run/8g");
        assert_eq!(
            (config.profiles[0].memory, config.devices[0].to_str()),
            (Size(8 << 30), Some("/dev/kvm"))
        );
    }

    #[test]
    fn impossible_values_are_named_with_their_place() {
        let profile = |rest: &str| format!("[[profile]]\nname = \"a\"\nmemory = \"1G\"\ncount = 1\n{rest}");
        assert!(read(&profile("")).is_ok());
        for (text, place, what) in [
            (profile("memroy = 1"), "line 5", "memroy"),
            (profile("weight = 0"), "profile \"a\"", "1 to 1000"),
            (profile("gpu = \"x\""), "line 5", "nvidia-smi -L"),
            (profile("vm-memory = 3"), "line 5", "such as \"8G\""),
            (profile("vm-memory = \"3X\""), "line 5", "such as \"8G\""),
            (profile("[settings]\nbus = \"x\""), "settings.bus", "the plugin sets it"),
            (profile("[settings.x]\ny = 1"), "settings.x", "several values"),
            (profile(&profile("")), "profile \"a\"", "twice"),
            ("domain = \"kubernetes.io\"\n".to_owned() + &profile(""), "domain", "gpu.example.org"),
            ("domain = \"a..b\"\n".to_owned() + &profile(""), "domain", "gpu.example.org"),
            ("devices = [\"kvm\"]\n".to_owned() + &profile(""), "devices", "/dev/kvm"),
            (profile("").replace("count = 1", "count = 65"), "profile \"a\"", "1 to 64"),
            (profile("").replace("\"a\"", "\"A\""), "profile \"A\"", "such as \"8g\""),
            (profile("").replace("\"1G\"", "\"0\""), "profile \"a\"", "memory"),
            (String::new(), "[[profile]]", "no resource"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(place) && error.contains(what), "{text}: {error}");
            assert!(error.contains("profiles.toml"), "{error}");
        }
    }
}
