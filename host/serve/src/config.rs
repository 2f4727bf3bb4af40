//! Configuration files: which are read, and errors that name the setting, its place and an example.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use similar::TextDiff;

use crate::settings::Settings;

/// Size limit of a configuration file in bytes, which is many times that of any real one.
const MOST: u64 = 1 << 20;
/// Least similarity, from 0 to 1, of an unknown name to the one that was probably meant.
const SIMILAR: f32 = 0.7;

/// An example of each setting, as it stands in a file.
pub(crate) const EXAMPLES: [(&str, &str); 28] = [
    ("bus", "\"vfio-user:/run/vgpu-device/vm1/device\""),
    ("executor", "\"cuda\""),
    ("gpu", "\"GPU-00112233-4455-6677-8899-aabbccddeeff\""),
    ("memory", "\"8G\""),
    ("reserve", "\"1G\""),
    ("shares", "\"/run/vgpu-device/gpus\""),
    ("weight", "2"),
    ("window", "\"256M\""),
    ("channels", "16"),
    ("address-range", "6"),
    ("address-part", "\"192G+64G\""),
    ("group", "\"kvm\""),
    ("control", "\"/run/vgpu-device/vm1/control\""),
    ("vm-memory", "\"16G\""),
    ("vm-slot", "4"),
    ("libcuda", "\"/usr/lib/x86_64-linux-gnu/libcuda.so.1\""),
    ("libcublas", "\"libcublas.so.12\""),
    ("worker-user", "\"vgpu-worker\""),
    ("worker-connects", "false"),
    ("explain-refusals", "true"),
    ("compiled", "\"/var/cache/vgpu-device/vm1/compiled\""),
    ("cc", "\"9.0\""),
    ("threads", "4"),
    ("kernel-timeout", "\"20m\""),
    ("engine", "\"jit\""),
    ("rate", "1000"),
    ("grace", "\"60s\""),
    ("log", "\"info\""),
];

/// Reason for which the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// A file cannot be read.
    #[error("read the configuration file {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// None of the files exists, each of which may be missing.
    #[error("there is no configuration: {} would do; `vgpu-device serve --help` lists the settings", .0)]
    Missing(String),
    /// A file is not TOML, has an unknown setting, or gives a setting an invalid value.
    #[error("the configuration file {}, line {line}: {what}", path.display())]
    Wrong { path: PathBuf, line: usize, what: String },
}

/// Where settings come from beside the command line.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ConfigFiles {
    /// A TOML file with these settings, by their long names without the dashes; options given here take
    /// precedence. Of several files the later one does. A file with `-` in front of its path may be missing
    /// if another one is there.
    #[arg(long = "config", value_name = "FILE", allow_hyphen_values = true)]
    files: Vec<PathBuf>,
}

impl ConfigFiles {
    /// Returns a file that may be missing.
    pub(crate) fn optional(path: &Path) -> Self {
        let mut file = OsString::from("-");
        file.push(path);
        Self { files: vec![file.into()] }
    }

    /// Returns the settings of the files, or none if all are missing.
    pub(crate) fn read_if_any(&self) -> Result<Settings, ConfigError> {
        match self.read() {
            Err(ConfigError::Missing(_)) => Ok(Settings::default()),
            read => read,
        }
    }

    /// Returns the settings of the files.
    pub(crate) fn read(&self) -> Result<Settings, ConfigError> {
        let mut all = Settings::default();
        let mut missing = Vec::new();
        for given in &self.files {
            let optional = given.to_str().and_then(|path| path.strip_prefix('-')).map(Path::new);
            match read_file(optional.unwrap_or(given)) {
                Ok(settings) => all = settings.or(all),
                Err(ConfigError::Read { path, source })
                    if optional.is_some() && source.kind() == std::io::ErrorKind::NotFound =>
                {
                    missing.push(path.display().to_string());
                }
                Err(error) => return Err(error),
            }
        }
        if !missing.is_empty() && missing.len() == self.files.len() {
            return Err(ConfigError::Missing(missing.join(" or ")));
        }
        Ok(all)
    }

    /// Returns where a setting was given, for an error: the option of the command line, or the files.
    pub(crate) fn place(&self, name: &str, line: &Settings) -> String {
        if line.given().iter().any(|given| given == name) || self.files.is_empty() {
            return format!("--{name}");
        }
        let files: Vec<_> = self.files.iter().map(|file| file.display().to_string()).collect();
        format!("`{name}` in {}", files.join(" or ").trim_start_matches('-'))
    }
}

/// Reads the settings of a file.
pub(crate) fn read_file(path: &Path) -> Result<Settings, ConfigError> {
    let text = vgpu_paths::read_to_string(path, MOST)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    toml::from_str(&text).map_err(|error| {
        let (line, what) = explained(&text, &error);
        ConfigError::Wrong { path: path.to_owned(), line, what }
    })
}

/// Returns the number of the line with the error, and a sentence that names the setting and an example.
pub(crate) fn explained(text: &str, error: &toml::de::Error) -> (usize, String) {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = text.get(..start).unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    let name = line.split('=').next().unwrap_or_default().trim().trim_matches('"');
    let message = error.message().trim();
    if message.starts_with("unknown field") {
        return (number, unknown(name));
    }
    let Some((name, example)) = EXAMPLES.iter().find(|(known, _)| *known == name) else {
        return (number, format!("{line}: {message}"));
    };
    let why = if message.starts_with("invalid type") { expected(example) } else { message };
    (number, format!("{line}: {why}; for example: {name} = {example}"))
}

/// Returns what a value must be, by an example of it.
fn expected(example: &str) -> &'static str {
    match example {
        "true" | "false" => "expected true or false, without quotation marks",
        text if text.starts_with('"') => "expected a value in quotation marks",
        _ => "expected a number without quotation marks",
    }
}

/// Says that there is no such setting, and which one was probably meant.
fn unknown(name: &str) -> String {
    let likeness = |known: &str| TextDiff::from_chars(name, known).ratio();
    let nearest = EXAMPLES.iter().max_by(|one, other| likeness(one.0).total_cmp(&likeness(other.0)));
    if let Some((known, example)) = nearest.filter(|(known, _)| likeness(known) >= SIMILAR) {
        return format!(
            "there is no setting {name}; one is called {known}, for example: {known} = {example}"
        );
    }
    let names: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
    format!("there is no setting {name}; the settings are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (usize, String) {
        explained(text, &toml::from_str::<Settings>(text).unwrap_err())
    }

    #[test]
    fn every_setting_has_an_example_that_is_understood() {
        for (name, example) in EXAMPLES {
            // A system need not have the group of the example.
            let example = if name == "group" { "\"root\"" } else { example };
            let settings: Settings = toml::from_str(&format!("{name} = {example}")).unwrap();
            assert_eq!(settings.given(), [name]);
        }
    }

    #[test]
    fn an_error_names_the_setting_its_line_and_an_example() {
        for (text, line, parts) in [
            ("bus = \"sim:/a\"\nmemroy = \"8G\"", 2, &["memroy", "memory = \"8G\""][..]),
            (
                "\n\nmemory = \"8X\"",
                3,
                &["memory = \"8X\": expected a size", "; for example: memory = \"8G\""],
            ),
            ("memory = 8", 1, &["in quotation marks", "memory = \"8G\""]),
            ("vm-slot = 32", 1, &["1 to 31", "vm-slot = 4"]),
            ("weight = 0", 1, &["1 to 1000", "weight = 2"]),
            ("channels = \"8\"", 1, &["a number without quotation marks", "channels = 16"]),
            ("worker-connects = \"yes\"", 1, &["true or false", "worker-connects = false"]),
            ("libcuda = 5", 1, &["a value in quotation marks", "libcuda.so.1"]),
            ("cc = 9.0", 1, &["in quotation marks", "cc = \"9.0\""]),
            ("bus = \"/a\"", 1, &["vfio-user:SOCKET", "bus = \"vfio-user:/run"]),
            ("executor = \"gpu\"", 1, &["soft", "executor = \"cuda\""]),
            ("engine = \"avx2\"", 1, &["jit-avx2", "engine = \"jit\""]),
            ("gpu = \"1\"", 1, &["a UUID", "gpu = \"GPU-0011"]),
            ("colour = \"red\"", 1, &["no setting colour", "bus, executor, gpu"]),
            ("memory \"8G\"", 1, &["memory \"8G\": "]),
            ("[vm]\nmemory = \"8G\"", 1, &["no setting [vm]"]),
        ] {
            let (number, what) = wrong(text);
            assert_eq!(number, line, "{text}: {what}");
            for part in parts {
                assert!(what.contains(part) && !what.contains('\n'), "{text}: {what}");
            }
        }
    }

    #[test]
    fn later_files_take_precedence_and_some_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("one"), "memory = \"1G\"\nweight = 3\n").unwrap();
        std::fs::write(file("two"), "memory = \"2G\"\n").unwrap();
        let optional = |name: &str| PathBuf::from(format!("-{}", file(name).display()));
        let read = |files: &[PathBuf]| ConfigFiles { files: files.to_vec() }.read();
        let both = read(&[file("one"), optional("none"), optional("two")]).unwrap();
        assert_eq!((both.memory.unwrap().to_string(), both.weight), ("2G".to_owned(), Some(3)));
        assert!(matches!(read(&[file("none"), file("two")]), Err(ConfigError::Read { .. })));
        let error = read(&[optional("none"), optional("nor")]).unwrap_err().to_string();
        assert!(error.contains("/none or ") && error.contains("/nor would do"), "{error}");
        assert_eq!(read(&[]).unwrap(), Settings::default());
    }
}
