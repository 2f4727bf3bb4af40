//! The metrics of the node process: what the VMs of each GPU have been promised, use, did and waited, as
//! monitoring systems read it. The endpoint is in [`endpoint`].
//!
//! For each answer, everything is read from the slots of the GPUs' files, where devices and arbiters store
//! it. No lock of an arbiter is taken, and a VM that is gone is gone from the next answer. A counter starts
//! anew with its device. No label has a value that a guest chooses: a VM has the name that the host gave it.

mod address;
mod collector;
mod endpoint;
mod nvidia;
mod reading;

use std::fmt;
use std::sync::{Arc, Mutex};

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;
use vgpu_device::lock;
use vgpu_share::GpuShare;

pub(crate) use address::MetricsOption;
pub(crate) use endpoint::Endpoint;

/// Format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, for people and for scrapers that know no other.
    Text,
}

/// A GPU whose time this process shares.
#[derive(Clone, Debug)]
struct SharedGpu {
    share: GpuShare,
    /// Number by which NVIDIA's tools call the GPU, if they have one.
    number: Option<usize>,
}

/// The GPUs that the metrics are about. Clones have the same GPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeasuredGpus(Arc<Mutex<Vec<SharedGpu>>>);

impl MeasuredGpus {
    /// Adds a GPU, or replaces its file.
    pub(crate) fn add(&self, share: GpuShare) {
        let number = nvidia::number(share.uuid());
        let mut gpus = lock(&self.0);
        gpus.retain(|gpu| gpu.share.uuid() != share.uuid());
        gpus.push(SharedGpu { share, number });
        gpus.sort_by_key(|gpu| gpu.share.uuid());
    }

    fn all(&self) -> Vec<SharedGpu> {
        lock(&self.0).clone()
    }

    /// Writes all metrics as they are now. Writing to a `String` does not fail.
    fn encode(&self, format: Format) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        match format {
            Format::OpenMetrics => text::encode(&mut text, &registry),
            Format::Text => prometheus_text::encode(&mut text, &registry),
        }?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use serde_json::Value;
    use vgpu_share::{Claim, GpuMemory, Gpus};

    use super::*;

    const DASHBOARD: &str = include_str!("../share/grafana-dashboard.json");

    /// Returns the names of metrics that a dashboard asks for.
    fn asked(value: &Value, names: &mut BTreeSet<String>) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| asked(value, names)),
            Value::Object(map) => {
                for (key, value) in map {
                    match value {
                        Value::String(text) if key == "expr" || key == "query" => {
                            let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
                            names.extend(words.filter(|word| word.starts_with("vgpu_")).map(str::to_owned));
                        }
                        value => asked(value, names),
                    }
                }
            }
            _ => {}
        }
    }

    #[test]
    fn a_dashboard_asks_for_metrics_that_exist() {
        let text = MeasuredGpus::default().encode(Format::Text).unwrap();
        let mut exist = BTreeSet::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            match kind {
                "histogram" => exist.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}"))),
                _ => drop(exist.insert(name.to_owned())),
            }
        }
        let mut names = BTreeSet::new();
        asked(&serde_json::from_str(DASHBOARD).unwrap(), &mut names);
        assert!(names.len() > 12, "{names:?}");
        assert_eq!(names.difference(&exist).collect::<Vec<_>>(), [] as [&String; 0], "{exist:?}");
        // Nothing but sums and counts of the histogram is left out of it, and what is 0 on a sound host.
        let left: Vec<_> = exist.difference(&names).map(String::as_str).collect();
        let expected =
            ["vgpu_slice_overrun_seconds_count", "vgpu_slice_overrun_seconds_sum", "vgpu_slots_left_out"];
        assert_eq!(left, expected);
    }

    #[test]
    fn names_are_labels_whatever_is_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let gpus = Gpus::open(&folder.path().join("gpus")).unwrap();
        let measured = MeasuredGpus::default();
        let claim = |digit, name| {
            let uuid = format!("GPU-0000000{digit}-0000-0000-0000-000000000000").parse().unwrap();
            let gpu = gpus.gpu(uuid).unwrap();
            measured.add(gpu.clone());
            let memory = GpuMemory { bytes: 100, reserve: 0 };
            let (promised, overhead, context_bytes, weight) = (Some(10), 0, 0, 3);
            let patience = Duration::ZERO;
            gpu.claim(&Claim { name, promised, overhead, context_bytes, weight, memory, patience }).unwrap()
        };
        let names = ["a\"},vgpu_sessions{vm=\"", "b\\", "\u{e4}"];
        let _slots = [claim(1, names[0]), claim(1, names[1]), claim(1, names[2]), claim(2, names[2])];
        for format in [Format::Text, Format::OpenMetrics] {
            let text = measured.encode(format).unwrap();
            for (gpu, name) in
                [(1, "a\\\"},vgpu_sessions{vm=\\\""), (1, "b\\\\"), (1, "\u{e4}"), (2, "\u{e4}")]
            {
                let uuid = format!("GPU-0000000{gpu}-0000-0000-0000-000000000000");
                let line = format!("\nvgpu_share_weight{{vm=\"{name}\",UUID=\"{uuid}\"}} 3\n");
                assert_eq!(text.matches(&line).count(), 1, "{line}{text}");
            }
            let promised =
                "vgpu_gpu_memory_promised_bytes{UUID=\"GPU-00000001-0000-0000-0000-000000000000\"} 30\n";
            assert!(text.contains(promised), "{text}");
        }
    }
}
