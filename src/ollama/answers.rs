//! Parses the output of Ollama's discovery processes and applies the same filters as Ollama, as pure
//! functions.

use std::collections::BTreeSet;

use serde::Deserialize;

/// A device line of `llama-server --list-devices`: `  CUDA0: NAME (8192 MiB, 7168 MiB free)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDevice {
    /// GGML's name of the device, such as `CUDA0`.
    pub name: String,
    /// Product name of the device.
    pub description: String,
    /// Total memory in MiB.
    pub total: u64,
    /// Free memory in MiB.
    pub free: u64,
}

/// Parses the devices from the output of `llama-server --list-devices`.
pub fn devices(text: &str) -> Vec<ListedDevice> {
    text.lines().filter_map(device).collect()
}

fn device(line: &str) -> Option<ListedDevice> {
    let line = line.strip_prefix([' ', '\t'])?.trim();
    let (name, rest) = line.split_once(": ")?;
    let (description, memory) = rest.strip_suffix(" MiB free)")?.rsplit_once(" (")?;
    let (total, free) = memory.split_once(" MiB, ")?;
    Some(ListedDevice {
        name: name.to_owned(),
        description: description.to_owned(),
        total: total.parse().ok()?,
        free: free.parse().ok()?,
    })
}

/// Returns the architectures after `CUDA : ARCHS = ` of the `system_info:` line, or after `CUDA.0.ARCHS=` in
/// older releases. Returns `None` if the line does not mention CUDA, which means that the backend was not
/// loaded.
pub fn architectures(text: &str) -> Option<BTreeSet<u32>> {
    let at =
        ["CUDA : ARCHS = ", "CUDA.0.ARCHS="].iter().find_map(|mark| Some(text.find(mark)? + mark.len()))?;
    let list = text[at..].split([' ', '|', '\n']).next()?;
    Some(list.split(',').filter_map(|number| number.parse().ok()).collect())
}

/// Returns whether the line that lists the backends (`system_info:`, or `msg=system` in older releases)
/// includes the CPU backend. Returns `None` if there is no such line.
pub fn processor(text: &str) -> Option<bool> {
    let line = text.lines().find(|line| line.contains("system_info:") || line.contains("msg=system "))?;
    Some(line.contains("| CPU : ") || line.contains(" CPU."))
}

/// Returns the compute capability of the device with this index, from `Device N: ..., compute capability 6.1,
/// ...`.
pub fn capability(text: &str, index: usize) -> Option<(u32, u32)> {
    let start = format!("Device {index}: ");
    let line = text.lines().map(str::trim_start).find(|line| line.starts_with(&start))?;
    let (_, rest) = line.split_once("compute capability ")?;
    let end = rest.find(|byte: char| !byte.is_ascii_digit() && byte != '.').unwrap_or(rest.len());
    let (major, minor) = rest[..end].split_once('.')?;
    Some((major.parse().ok()?, minor.trim_end_matches('.').parse().ok()?))
}

/// Start of GGML's explanation for a backend that it could not load: `load_backend: failed to load PATH:
/// REASON`.
const REFUSAL: &str = "load_backend: failed to load ";
/// Start of the names of the CPU backends. One of them is enough.
const OF_PROCESSOR: &str = "libggml-cpu";

/// Returns GGML's explanation for a backend of a device that it could not load.
pub fn refusal(text: &str) -> Option<&str> {
    refusals(text).find(|refusal| !is_of_processor(refusal))
}

/// Returns GGML's explanation for a CPU backend that it could not load.
pub fn processor_refusal(text: &str) -> Option<&str> {
    refusals(text).find(|refusal| is_of_processor(refusal))
}

fn refusals(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| Some(&line[line.find(REFUSAL)?..]))
}

/// Returns whether an explanation is about a CPU backend, by the name of the file.
fn is_of_processor(refusal: &str) -> bool {
    let path = refusal[REFUSAL.len()..].split(": ").next().unwrap_or_default();
    path.rsplit('/').next().is_some_and(|name| name.starts_with(OF_PROCESSOR))
}

/// A device in the output of `ollama gpu-discover` or of a runner's `/info`. Their keys differ; keys that a
/// release does not have are empty or zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DiscoveredDevice {
    /// Value of CUDA_VISIBLE_DEVICES that selects this device alone: its UUID, as a runner reports it.
    pub id: String,
    /// GGML's name of the device, such as `CUDA0`.
    pub name: String,
    /// Product name of the device.
    pub description: String,
    /// Name of the backend library, such as `CUDA`.
    #[serde(alias = "backend")]
    pub library: String,
    /// Major number of the compute capability; 0 or -1 if unknown.
    #[serde(alias = "ComputeMajor")]
    pub compute_major: i32,
    /// Minor number of the compute capability.
    #[serde(alias = "ComputeMinor")]
    pub compute_minor: i32,
    /// Major number of the CUDA version that `cuDriverGetVersion` reports.
    #[serde(alias = "cuda_driver_major")]
    pub driver_major: u32,
    /// Major version of NVIDIA's driver, as NVML reports it.
    pub nvidia_driver_major: u32,
    /// PCI address, such as `0000:00:05.0`.
    #[serde(alias = "device_id")]
    pub pci_id: String,
    /// Total memory in bytes.
    pub total_memory: u64,
    /// Free memory in bytes.
    pub free_memory: u64,
}

impl DiscoveredDevice {
    /// Returns the compute capability. Releases report 0 or -1 if it is unknown, which gives `None`.
    pub fn capability(&self) -> Option<(u32, u32)> {
        let number = |part: i32| u32::try_from(part).ok();
        Some((number(self.compute_major).filter(|major| *major > 0)?, number(self.compute_minor)?))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum DiscoveryAnswer {
    /// Answer of `gpu-discover`.
    Named { devices: Vec<DiscoveredDevice> },
    /// Answer of a runner's `/info`.
    Plain(Vec<DiscoveredDevice>),
}

/// Parses the devices of a JSON answer of either form.
pub fn native(text: &str) -> Result<Vec<DiscoveredDevice>, serde_json::Error> {
    Ok(match serde_json::from_str(text)? {
        DiscoveryAnswer::Named { devices } | DiscoveryAnswer::Plain(devices) => devices,
    })
}

/// Reason why Ollama ignores a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The device has no memory.
    Memory,
    /// The backend was not built for the device's compute capability.
    Architecture,
    /// The driver is older than this required major version.
    Driver(u32),
}

/// Applies Ollama's filters to a CUDA device. `architectures` are those that the backend prints, `cuda` is
/// the backend's CUDA major version, `driver` the driver's major version, and `total` the memory in MiB. An
/// unknown value never excludes a device.
pub fn dropped(
    capability: Option<(u32, u32)>,
    architectures: Option<&BTreeSet<u32>>,
    cuda: Option<u32>,
    driver: Option<u32>,
    total: u64,
) -> Option<Dropped> {
    if total == 0 {
        return Some(Dropped::Memory);
    }
    if let (Some((major, minor)), Some(built)) = (capability, architectures)
        && !built.is_empty()
        && !built.contains(&(100 * major + 10 * minor))
    {
        return Some(Dropped::Architecture);
    }
    let wanted = if capability.is_some_and(|(major, _)| major < 7) { 570 } else { 550 };
    match (cuda, driver) {
        (Some(12), Some(driver)) if driver > 0 && driver < wanted => Some(Dropped::Driver(wanted)),
        _ => None,
    }
}

/// Returns the default context length of Ollama in tokens, which depends on the total memory of all devices
/// in bytes.
pub fn default_context(total: u64) -> u32 {
    const GIB: u64 = 1 << 30;
    match total {
        0.. if total >= 47 * GIB => 262_144,
        _ if total >= 23 * GIB => 32_768,
        _ => 4096,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: &str = "Available devices:\n  CUDA0: VGPU-STUB soft (8192 MiB, 7168 MiB free)\n  \
                        CUDA1: a (b) : c (1 MiB, 0 MiB free)\nCUDA2: not indented (1 MiB, 1 MiB free)\n";

    #[test]
    fn device_lines() {
        let found = devices(LIST);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].name.as_str(), found[0].description.as_str()), ("CUDA0", "VGPU-STUB soft"));
        assert_eq!((found[0].total, found[0].free), (8192, 7168));
        assert_eq!((found[1].description.as_str(), found[1].total), ("a (b) : c", 1));
        assert!(devices("Available devices:\n  (none)\n").is_empty());
    }

    #[test]
    fn the_line_of_system_info() {
        let line = "0.00.017.312 I cmn  common_param: system_info: n_threads = 2 | CUDA : ARCHS = 500,610,750 | USE_GRAPHS = 1 |";
        assert_eq!(architectures(line), Some([500, 610, 750].into()));
        assert_eq!(architectures("msg=system CUDA.0.ARCHS=750 CUDA.0.USE_GRAPHS=1"), Some([750].into()));
        assert_eq!(architectures("system_info: n_threads = 2 | CPU : SSE3 = 1 |"), None);
        assert_eq!(
            processor("x\nsystem_info: n_threads = 2 | CUDA : ARCHS = 750 | CPU : SSE3 = 1 |"),
            Some(true)
        );
        assert_eq!(processor(line), Some(false));
        assert_eq!(processor("msg=system CPU.0.LLAMAFILE=1 CUDA.0.ARCHS=750"), Some(true));
        assert_eq!(processor("msg=system CUDA.0.ARCHS=750 compiler=cgo(gcc)"), Some(false));
        assert_eq!(processor("Available devices:"), None);
    }

    #[test]
    fn capabilities_and_refusals() {
        let line = "  Device 0: VGPU-STUB soft, compute capability 6.1, VMM: no, VRAM: 8192 MiB";
        assert_eq!(capability(line, 0), Some((6, 1)));
        let two = format!("{line}\n  Device 1: b, compute capability 12.0");
        assert_eq!(capability(&two, 1), Some((12, 0)));
        assert_eq!(capability(&two, 2), None);
        assert_eq!(capability("Device 0: compute capability x", 0), None);
        let text = "a\n0.00 E load_backend: failed to load /x/libggml-cuda.so: libcuda.so.1: cannot open\nb";
        assert_eq!(
            refusal(text),
            Some("load_backend: failed to load /x/libggml-cuda.so: libcuda.so.1: cannot open")
        );
    }

    #[test]
    fn both_kinds_of_json() {
        let probe = r#"{"devices":[{"library":"CUDA","index":0,"name":"CUDA0","device_id":"0000:00:05.0","integrated_known":true,
            "total_memory":8589934592,"compute_major":6,"compute_minor":1,"cuda_driver_major":13,"nvidia_driver_major":580}]}"#;
        let found = &native(probe).unwrap()[0];
        assert_eq!(
            (found.pci_id.as_str(), found.compute_major, found.nvidia_driver_major),
            ("0000:00:05.0", 6, 580)
        );
        let info = r#"[{"id":"GPU-1","backend":"CUDA","name":"CUDA0","description":"x","pci_id":"0000:00:05.0","driver_major":13}]"#;
        let found = &native(info).unwrap()[0];
        assert_eq!((found.library.as_str(), found.driver_major, found.total_memory), ("CUDA", 13, 0));
        assert_eq!(native("[]").unwrap(), []);
        assert!(native("{}").is_err() && native("null").is_err());
    }

    #[test]
    fn ollama_s_filters() {
        let built: BTreeSet<u32> = [500, 610, 750].into();
        let of =
            |capability, cuda, driver, total| dropped(Some(capability), Some(&built), cuda, driver, total);
        assert_eq!(of((6, 1), Some(12), Some(580), 8192), None);
        assert_eq!(of((6, 1), Some(12), Some(580), 0), Some(Dropped::Memory));
        assert_eq!(of((6, 2), Some(12), Some(580), 1), Some(Dropped::Architecture));
        assert_eq!(of((6, 1), Some(12), Some(560), 1), Some(Dropped::Driver(570)));
        assert_eq!(of((7, 5), Some(12), Some(560), 1), None);
        assert_eq!(of((7, 5), Some(12), Some(549), 1), Some(Dropped::Driver(550)));
        assert_eq!(of((7, 5), Some(13), Some(1), 1), None, "the rule is of CUDA 12 alone");
        assert_eq!(of((7, 5), Some(12), Some(0), 1), None, "not known: kept");
        assert_eq!(dropped(None, None, None, None, 1), None);
    }

    #[test]
    fn contexts_grow_with_memory() {
        for (gib, expected) in
            [(0, 4096), (22, 4096), (23, 32_768), (46, 32_768), (47, 262_144), (80, 262_144)]
        {
            assert_eq!(default_context(gib << 30), expected);
        }
    }

    proptest! {
        #[test]
        fn a_device_is_read_back(name in "[A-Z]{1,6}[0-9]", description in "[ -~]{0,30}", total: u32, free: u32) {
            let line = format!("  {name}: {description} ({total} MiB, {free} MiB free)");
            let expected = ListedDevice { name, description, total: total.into(), free: free.into() };
            prop_assert_eq!(devices(&line), vec![expected]);
        }

        #[test]
        fn nothing_breaks_the_readers(text in ".{0,120}", tail in ".{0,30}") {
            for text in [text, format!("CUDA : ARCHS = {tail}"), format!("compute capability {tail}"), format!("  x: {tail}")] {
                let _ = (devices(&text), architectures(&text), capability(&text, 0), refusal(&text));
            }
        }
    }
}
