//! All environment variables that the launcher reads or sets, and the environment of the started program.

use std::ffi::{OsStr, OsString};

/// Set to our libraries, followed by the inherited value. ld.so splits it on colons and spaces.
pub const LD_PRELOAD: &str = "LD_PRELOAD";
/// Set to the private directory, followed by the inherited value. ld.so splits it on colons and semicolons.
pub const LD_LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Read to find programs whose name has no slash.
pub const PATH: &str = "PATH";
/// Read to see whether the user selected devices. The shims evaluate the selection.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Read by `check`: the address at which Ollama listens.
pub const OLLAMA_HOST: &str = "OLLAMA_HOST";
/// Read as the first candidate for the private directory. Removed by `--user`, because it belongs to the
/// caller.
pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Read as a later candidate for the private directory.
pub const TMPDIR: &str = "TMPDIR";
/// Read by the launcher and, inherited, by the shims: a directory that replaces `/sys`.
pub const VGPU_SYSFS: &str = "VGPU_SYSFS";
/// Read by the launcher and, inherited, by the shims: the log level `error`, `warn`, `info` or `debug`;
/// logging is off otherwise.
pub const VGPU_LOG: &str = "VGPU_LOG";
/// Read by the launcher and, inherited, by the shims: log lines are appended to this file instead of stderr.
pub const VGPU_LOG_FILE: &str = "VGPU_LOG_FILE";
/// Read by the launcher and, inherited, by the tracer, which the launcher then preloads first: the directory
/// of the trace.
pub const VGPU_TRACE: &str = "VGPU_TRACE";
/// Set when tracing, to make ld.so log its decisions.
pub const LD_DEBUG: &str = "LD_DEBUG";
/// Set when tracing, to the file prefix of ld.so's log.
pub const LD_DEBUG_OUTPUT: &str = "LD_DEBUG_OUTPUT";
/// Set by `--user` to the user's home directory.
pub const HOME: &str = "HOME";
/// Set by `--user` to the user's name.
pub const USER: &str = "USER";
/// Set by `--user` to the user's name.
pub const LOGNAME: &str = "LOGNAME";
/// Set by `--user` to the user's shell.
pub const SHELL: &str = "SHELL";

/// Environment of a program that is to be started. The order of the inherited entries and all foreign entries
/// are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// Returns the environment that this process inherited.
    pub fn inherited() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// Returns the value of `key`. The first of several entries counts, as for getenv.
    pub fn get(&self, key: &str) -> Option<&OsStr> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_os_str())
    }

    /// Makes `value` the only entry of `key`. An existing entry keeps its position.
    pub fn set(&mut self, key: &str, value: impl Into<OsString>) {
        let place = self.0.iter().position(|(name, _)| name == key);
        let entry = (key.into(), value.into());
        match place {
            Some(at) => {
                self.0[at] = entry;
                let mut index = 0;
                self.0.retain(|(name, _)| {
                    index += 1;
                    index - 1 <= at || name != key
                });
            }
            None => self.0.push(entry),
        }
    }

    /// Removes every entry of `key`.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(name, _)| name != key);
    }

    /// Returns all entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, &str)]) -> Environment {
        entries.iter().copied().collect()
    }

    #[test]
    fn set_keeps_the_place_and_drops_duplicates() {
        let mut environment = of(&[("A", "1"), ("B", "2"), ("A", "3"), ("C", "4")]);
        environment.set("A", "5");
        assert_eq!(environment, of(&[("A", "5"), ("B", "2"), ("C", "4")]));
        environment.set("D", "6");
        assert_eq!(environment, of(&[("A", "5"), ("B", "2"), ("C", "4"), ("D", "6")]));
    }

    #[test]
    fn the_first_of_several_counts() {
        assert_eq!(of(&[("A", "1"), ("A", "2")]).get("A"), Some(OsStr::new("1")));
        assert_eq!(of(&[("A", "1")]).get("B"), None);
    }

    #[test]
    fn remove_takes_all() {
        let mut environment = of(&[("A", "1"), ("B", "2"), ("A", "3")]);
        environment.remove("A");
        assert_eq!(environment, of(&[("B", "2")]));
    }
}
