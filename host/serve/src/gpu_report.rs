//! The VMs of each GPU, as `status` shows them.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use vgpu_findings::{size, time};
use vgpu_share::{Figure, GpuUuid};

use crate::gpus::{GpuReading, Reading, VmReading};
use crate::table;

/// Column headings of the table of VMs.
const HEADS: [&str; 12] = [
    "VM",
    "WEIGHT",
    "SHARE",
    "USED",
    "PROMISED",
    "A CONTEXT",
    "SESSIONS",
    "CONNECTED",
    "GPU TIME",
    "GPU",
    "WAITS",
    "PROCESS",
];
/// Time without a sign of life after which a node process counts as silent. It gives one twice a second.
const SILENCE: Duration = Duration::from_millis(900);
/// Placeholder for a value that is not known.
const UNKNOWN: &str = "-";

/// A GPU with the VMs that have a share of it.
#[derive(Debug, Serialize)]
pub(crate) struct GpuReport {
    /// UUID, as NVIDIA's tools print it.
    uuid: String,
    /// Bytes of memory that the GPU has.
    total: u64,
    /// Bytes that are promised to no VM.
    reserve: u64,
    /// Bytes that are promised.
    promised: u64,
    /// Bytes that are still to be promised.
    free: u64,
    node: NodeState,
    /// VMs in the order of their slots.
    vms: Vec<VmReport>,
}

/// State of the node process of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum NodeState {
    /// There is none.
    None,
    /// It shares the GPU's time.
    Runs,
    /// It has given no sign of life between the two readings.
    Silent,
}

/// The share of a VM.
#[derive(Debug, Serialize)]
struct VmReport {
    name: String,
    /// UUID that the guest sees.
    device_uuid: String,
    /// Number of the device's process.
    process: u64,
    /// Whether the device's process runs. Otherwise workers of it hold the share, which have not ended.
    runs: bool,
    /// Whether a VM is connected to the device.
    connected: bool,
    /// Sessions of the VM.
    sessions: u64,
    /// Bytes that the VM has been promised.
    promised: u64,
    /// Bytes of them that are in use, contexts included.
    used: u64,
    /// Bytes that each of its contexts costs, which are part of the promise.
    context_bytes: u64,
    /// Weight of its share of time.
    weight: u32,
    /// Part of the GPU's time that it gets while all VMs have work, from 0 to 1.
    share: f64,
    /// Microseconds of the GPU's time that it has had.
    gpu_time_us: u64,
    /// Microseconds of these that the node process has charged, because other VMs had work too.
    charged_us: u64,
    /// Microseconds for which it had work while another VM had the GPU.
    waited_us: u64,
    /// What it has had between the two readings. `None` if the device is newer or hangs.
    last_second: Option<LastSecond>,
}

/// Parts of the time between two readings.
#[derive(Clone, Copy, Debug, Serialize)]
struct LastSecond {
    /// Part for which the VM has had the GPU, from 0 to 1.
    gpu: f64,
    /// Part for which it had work while another VM had the GPU, from 0 to 1.
    waits: f64,
}

/// Returns the GPUs as they are in the reading `now`, with what has changed since `before`.
pub(crate) fn reports(before: &Reading, now: &Reading) -> Vec<GpuReport> {
    let report = |(uuid, now): (&GpuUuid, &GpuReading)| GpuReport::new(*uuid, before.gpus.get(uuid), now);
    now.gpus.iter().map(report).collect()
}

impl LastSecond {
    /// Returns what a VM has had between two readings, of which `passed` is the time between them. It is not
    /// known if they are not of one device, or if the device has stored nothing meanwhile.
    fn between(before: &VmReading, now: &VmReading, passed: Duration) -> Option<Self> {
        let part = |before: Duration, now: Duration, passed: Duration| {
            let part = now.checked_sub(before)?.as_secs_f64() / passed.as_secs_f64();
            // Work may be noticed late, and counted in a later time than its own.
            part.is_finite().then_some(part.min(1.0))
        };
        // A device stores its time a few times a second, and the node process at once.
        let stored = now.stored.saturating_sub(before.stored);
        if now.process != before.process {
            return None;
        }
        Some(Self {
            gpu: part(before.gpu_time, now.gpu_time, stored)?,
            waits: part(before.waited, now.waited, passed)?,
        })
    }
}

impl GpuReport {
    fn new(uuid: GpuUuid, before: Option<&GpuReading>, now: &GpuReading) -> Self {
        let passed = before.map_or(Duration::ZERO, |before| now.at.saturating_duration_since(before.at));
        let vm = |(number, vm): (&usize, &VmReading)| {
            let earlier = before.and_then(|before| before.vms.get(number));
            let last = earlier.and_then(|earlier| LastSecond::between(earlier, vm, passed));
            VmReport::new(vm, now.weights, last)
        };
        let node = match before {
            _ if !now.has_node => NodeState::None,
            Some(before) if before.has_node && before.beats == now.beats && passed >= SILENCE => {
                NodeState::Silent
            }
            _ => NodeState::Runs,
        };
        Self {
            uuid: uuid.to_string(),
            total: now.total,
            reserve: now.reserve,
            promised: now.promised,
            free: now.total.saturating_sub(now.reserve).saturating_sub(now.promised),
            node,
            vms: now.vms.iter().map(vm).collect(),
        }
    }

    /// Returns whether the device of this name or process has a share.
    pub(crate) fn has(&self, is_one: impl Fn(&str, u64) -> bool) -> bool {
        self.vms.iter().any(|vm| is_one(&vm.name, vm.process))
    }

    /// Writes the GPU for people.
    pub(crate) fn write(&self, text: &mut String) {
        let vms = if self.vms.len() == 1 { "1 VM".to_owned() } else { format!("{} VMs", self.vms.len()) };
        let [total, reserve, promised, free] = [self.total, self.reserve, self.promised, self.free].map(size);
        _ = writeln!(
            text,
            "{}  {total}, {reserve} reserved, {vms} promised {promised}, {free} free; {}",
            self.uuid,
            self.node.words()
        );
        let rows: Vec<_> =
            [HEADS.map(str::to_owned)].into_iter().chain(self.vms.iter().map(VmReport::row)).collect();
        table::write(text, &rows, true);
    }
}

impl NodeState {
    const fn words(self) -> &'static str {
        match self {
            Self::None => "no node process shares its time",
            Self::Runs => "the node process shares its time",
            Self::Silent => "the node process does not answer",
        }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl VmReport {
    fn new(vm: &VmReading, weights: u32, last_second: Option<LastSecond>) -> Self {
        let slot = &vm.slot;
        let runs = slot.device_lives();
        Self {
            name: slot.name(),
            device_uuid: slot.device_uuid().to_string(),
            process: vm.process,
            runs,
            connected: slot.figure(Figure::Connected) != 0,
            sessions: slot.figure(Figure::Sessions),
            promised: vm.held,
            used: slot.figure(Figure::Used),
            context_bytes: slot.figure(Figure::ContextBytes),
            weight: slot.weight(),
            share: if runs { f64::from(slot.weight()) / f64::from(weights.max(1)) } else { 0.0 },
            // The device adds its time up a few times a second, and the node process charges at once.
            gpu_time_us: microseconds(vm.gpu_time.max(vm.charged)),
            charged_us: microseconds(vm.charged),
            waited_us: microseconds(vm.waited),
            last_second,
        }
    }

    fn row(&self) -> [String; HEADS.len()] {
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        let last = |part: fn(LastSecond) -> f64| {
            self.last_second.map_or_else(|| UNKNOWN.to_owned(), |last| percent(part(last)))
        };
        let connected = match (self.runs, self.connected) {
            (false, _) => "ended",
            (true, false) => "no",
            (true, true) => "yes",
        };
        [
            self.name.clone(),
            self.weight.to_string(),
            percent(self.share),
            size(self.used),
            size(self.promised),
            size(self.context_bytes),
            self.sessions.to_string(),
            connected.to_owned(),
            time(Duration::from_micros(self.gpu_time_us).as_secs_f64()),
            last(|last| last.gpu),
            last(|last| last.waits),
            self.process.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::thread;

    use vgpu_host_testing::guest::until;
    use vgpu_share::arbiter::{Node, NodeOptions};
    use vgpu_share::{Claim, GpuMemory, GpuShare, Gpus, Slot};

    use super::*;

    const UUID: &str = "GPU-00112233-4455-6677-8899-aabbccddeeff";
    const GIB: u64 = 1 << 30;
    const CONTEXT: u64 = 300 << 20;

    fn claim(gpu: &GpuShare, name: &str, weight: u64, gib: u64) -> Slot {
        gpu.claim(&Claim {
            name,
            promised: Some(gib * GIB),
            overhead: 0,
            context_bytes: CONTEXT,
            weight,
            memory: GpuMemory { bytes: 6 * GIB, reserve: GIB / 2 },
            patience: Duration::ZERO,
        })
        .unwrap()
    }

    fn store(slot: &Slot, figures: &[(Figure, u64)]) {
        for (figure, value) in figures {
            slot.figure(*figure).store(*value, Ordering::Release);
        }
    }

    /// Has a reading be a second old.
    fn age(mut reading: Reading) -> Reading {
        for gpu in reading.gpus.values_mut() {
            gpu.at = gpu.at.checked_sub(Duration::from_secs(1)).unwrap();
        }
        reading
    }

    #[test]
    fn a_gpu_is_a_line_and_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpus");
        let read = || Reading::now(Some(&path));
        assert!(read().is_empty() && !path.exists(), "a look makes nothing");
        let gpu = Gpus::open(&path).unwrap().gpu(UUID.parse().unwrap()).unwrap();
        assert!(read().is_empty(), "no VM has a share");
        let (one, other) = (claim(&gpu, "vm1", 1, 2), claim(&gpu, "other", 3, 3));
        let second = 1_000_000_000;
        store(&one, &[(Figure::GpuTime, 11 * second), (Figure::Process, 4711), (Figure::Stored, second)]);
        store(&other, &[(Figure::Process, 12), (Figure::Stored, 5 * second)]);
        let before = age(read());
        store(
            &one,
            &[
                (Figure::GpuTime, 11 * second + second / 5),
                (Figure::Stored, second + 4 * second / 5),
                (Figure::Used, CONTEXT + GIB),
                (Figure::Sessions, 1),
                (Figure::Connected, 1),
            ],
        );
        let now = read();
        let text = |gpus: &[GpuReport]| {
            let mut text = String::new();
            for gpu in gpus {
                gpu.write(&mut text);
            }
            text
        };
        let expected = "\
GPU-00112233-4455-6677-8899-aabbccddeeff  6 GiB, 512 MiB reserved, 2 VMs promised 5 GiB, 512 MiB free; no node process shares its time
  VM     WEIGHT  SHARE     USED  PROMISED  A CONTEXT  SESSIONS  CONNECTED  GPU TIME   GPU  WAITS  PROCESS
  vm1         1   25 %  1.3 GiB     2 GiB    300 MiB         1        yes    11.2 s  25 %    0 %     4711
  other       3   75 %  0 bytes     3 GiB    300 MiB         0         no     0.0 s     -      -       12
";
        let shown = text(&reports(&before, &now));
        assert_eq!(shown, expected, "\n{shown}");
        // Without an earlier reading nothing is made up, and neither is if another device has the slot.
        for earlier in [Reading::default(), {
            store(&one, &[(Figure::Process, 4712)]);
            store(&other, &[(Figure::Process, 13)]);
            age(read())
        }] {
            let json = serde_json::to_value(reports(&earlier, &now)).unwrap();
            assert!(json[0]["vms"].as_array().unwrap().iter().all(|vm| vm["last_second"].is_null()));
        }
        let json = serde_json::to_value(reports(&before, &now)).unwrap();
        let (vm, last) = (&json[0]["vms"][0], &json[0]["vms"][0]["last_second"]);
        assert_eq!(
            (&vm["share"], &vm["gpu_time_us"], &vm["runs"]),
            (&0.25.into(), &11_200_000.into(), &true.into())
        );
        assert_eq!((&last["gpu"], &last["waits"]), (&0.25.into(), &0.0.into()));
        assert!(json[0]["vms"][1]["last_second"].is_null(), "its device hangs");
        // The weights of devices that have ended do not count, and their workers still hold memory.
        let _worker = other.worker_lock().unwrap();
        drop(other);
        let json = || serde_json::to_value(reports(&before, &read())).unwrap();
        // A process that another test starts at this moment has the device's lock for a while.
        until("the device has ended", || json()[0]["vms"][1]["runs"] == false);
        let json = json();
        let vms = json[0]["vms"].as_array().unwrap();
        assert_eq!((&vms[0]["share"], &vms[1]["share"]), (&1.0.into(), &0.0.into()));
        assert_eq!((&json[0]["promised"], &json[0]["node"]), (&(5 * GIB).into(), &"none".into()));
    }

    #[test]
    fn a_node_process_runs_or_is_silent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpus");
        let gpu = Gpus::open(&path).unwrap().gpu(UUID.parse().unwrap()).unwrap();
        let _slot = claim(&gpu, "vm1", 1, 2);
        let read = || Reading::now(Some(&path));
        let state = |before: &Reading| reports(before, &read())[0].node;
        let none = age(read());
        assert_eq!(state(&none), NodeState::None);
        let node = Node::new(gpu, NodeOptions::default());
        let runs = thread::spawn({
            let node = std::sync::Arc::clone(&node);
            move || node.run()
        });
        until("it runs", || state(&none) == NodeState::Runs);
        let before = age(read());
        until("it gives a sign of life", || state(&before) == NodeState::Runs);
        // Nothing has happened since this reading, which seems to be a second old.
        // The next sign of life may come between two readings.
        until("it is silent", || state(&age(read())) == NodeState::Silent);
        until("it runs after so short a time", || state(&read()) == NodeState::Runs);
        node.stop();
        runs.join().unwrap().unwrap();
        assert_eq!(state(&before), NodeState::None);
    }
}
