//! Output of a child that queried NVIDIA's libraries: one JSON object per line.

use serde::{Deserialize, Serialize};

/// A line that the child prints.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "said", rename_all = "kebab-case")]
pub enum Said {
    /// The library is loaded.
    Loaded {
        /// Path or name by which the library was loaded.
        library: String,
    },
    /// The library cannot be loaded.
    Unloadable {
        /// Path or name by which the library was loaded.
        library: String,
        /// Message of the dynamic loader.
        error: String,
    },
    /// A function of the library failed.
    Refused {
        /// Name of the function.
        function: String,
        /// Code that the function returned, or `None` if the library has no such function.
        code: Option<u32>,
    },
    /// Version from `cuDriverGetVersion`, as 1000 * major + 10 * minor.
    Cuda {
        /// Version number that the driver returned.
        version: u32,
    },
    /// Version from `nvmlSystemGetDriverVersion`.
    Driver {
        /// Version such as `580.65.06`.
        version: String,
    },
    /// A GPU of this host.
    Gpu(Box<HostGpu>),
}

/// A GPU as NVML describes it. A field is `None` if NVML does not report it or the GPU does not have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct HostGpu {
    /// UUID, as in `GPU-...`.
    pub uuid: String,
    /// Product name of the GPU.
    pub name: String,
    /// PCI address, such as `0000:01:00.0`.
    pub pci: Option<String>,
    /// Device memory in bytes.
    pub memory: Option<u64>,
    /// Compute mode as `nvmlComputeMode_t`: 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process.
    pub compute_mode: Option<u32>,
    /// Whether persistence mode is on.
    pub persistence: Option<bool>,
    /// Whether MIG is on.
    pub mig: Option<bool>,
    /// MIG instances of the GPU.
    pub instances: Vec<MigInstance>,
}

/// A MIG instance of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct MigInstance {
    /// UUID, as in `MIG-...`.
    pub uuid: String,
    /// Device memory in bytes.
    pub memory: Option<u64>,
}

/// Answer of a child, with its end if it failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Lines that the child printed.
    pub said: Vec<Said>,
    /// Unsuccessful end of the child, or `None` if it succeeded.
    pub trouble: Option<Trouble>,
}

/// Unsuccessful end of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Description of the end, such as `was killed by signal 11 (SIGSEGV)`.
    pub words: String,
    /// Whether the child exceeded its time limit.
    pub hung: bool,
}

impl Asked {
    /// Reads the output of a child. Lines that are not the child's are ignored, because libraries print, too.
    pub fn read(stdout: &str, trouble: Option<Trouble>) -> Self {
        let said = stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Self { said, trouble }
    }

    /// Returns the first step that did not succeed.
    pub fn failure(&self) -> Option<&Said> {
        self.said.iter().find(|said| matches!(said, Said::Unloadable { .. } | Said::Refused { .. }))
    }

    /// Returns the GPUs that NVML listed.
    pub fn gpus(&self) -> impl Iterator<Item = &HostGpu> {
        self.said.iter().filter_map(|said| if let Said::Gpu(gpu) = said { Some(&**gpu) } else { None })
    }

    /// Returns the version that `cuDriverGetVersion` reported.
    pub fn cuda(&self) -> Option<u32> {
        self.said
            .iter()
            .find_map(|said| if let Said::Cuda { version } = said { Some(*version) } else { None })
    }

    /// Returns the driver's version as NVML reported it.
    pub fn driver(&self) -> Option<&str> {
        self.said
            .iter()
            .find_map(|said| if let Said::Driver { version } = said { Some(&**version) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_libraries_are_passed_over() {
        let gpu = HostGpu { uuid: "GPU-1".into(), mig: Some(false), ..HostGpu::default() };
        let lines: Vec<String> = [Said::Cuda { version: 13_000 }, Said::Gpu(Box::new(gpu.clone()))]
            .iter()
            .map(|said| serde_json::to_string(said).unwrap())
            .collect();
        let asked = Asked::read(&format!("{}\nnoise\n{{\"a\":1}}\n{}\n", lines[0], lines[1]), None);
        assert_eq!(asked.cuda(), Some(13_000));
        assert_eq!(asked.gpus().collect::<Vec<_>>(), [&gpu]);
        assert_eq!((asked.failure(), asked.driver()), (None, None));
    }
}
