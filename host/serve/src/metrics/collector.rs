//! The metrics, with their names, units and texts.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use vgpu_share::scheduler::{OVERRUN_BOUNDS, Overruns};

use super::MeasuredGpus;
use super::reading::{Gpu, Vm};

/// Labels of a value. Their values are escaped where they are written.
type Labels<'a> = Vec<(&'a str, &'a str)>;

/// Name of a metric without its unit, its text, and its unit.
type About<'a> = (&'a str, &'a str, Option<Unit>);

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// Writes one metric after the other.
struct Writer<'a, 'b> {
    gpus: &'a [Gpu],
    encoder: &'a mut DescriptorEncoder<'b>,
}

impl Gpu {
    /// Returns the labels by which metrics of DCGM name the GPU.
    fn labels(&self) -> Labels<'_> {
        let number = self.number.as_deref().map(|number| ("gpu", number));
        [("UUID", self.uuid.as_str())].into_iter().chain(number).collect()
    }
}

impl Writer<'_, '_> {
    /// Writes a metric with the values that `each` writes for a VM, whose labels it gets.
    fn vms(
        &mut self,
        (name, help, unit): About<'_>,
        kind: MetricType,
        each: impl Fn(&mut MetricEncoder<'_>, &Labels<'_>, &Vm) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for gpu in self.gpus {
            for vm in &gpu.vms {
                each(&mut metric, &vec![("vm", &vm.name), ("UUID", &gpu.uuid)], vm)?;
            }
        }
        Ok(())
    }

    fn gauge(&mut self, about: About<'_>, value: impl Fn(&Vm) -> u64) -> fmt::Result {
        self.vms(about, MetricType::Gauge, |metric, labels, vm| {
            metric.encode_family(labels)?.encode_gauge(&value(vm))
        })
    }

    fn counter<V: EncodeCounterValue>(&mut self, about: About<'_>, value: impl Fn(&Vm) -> V) -> fmt::Result {
        self.vms(about, MetricType::Counter, |metric, labels, vm| {
            metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&value(vm), None)
        })
    }

    /// Writes a counter with several values of each VM, which a label of this name distinguishes.
    fn counters<const N: usize>(
        &mut self,
        about: About<'_>,
        label: &str,
        each: [&str; N],
        values: impl Fn(&Vm) -> [u64; N],
    ) -> fmt::Result {
        self.vms(about, MetricType::Counter, |metric, labels, vm| {
            for (of, value) in each.into_iter().zip(values(vm)) {
                let labels = [labels.as_slice(), &[(label, of)]].concat();
                metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
            Ok(())
        })
    }

    /// Writes a metric with a value of each GPU.
    fn of_gpus(&mut self, (name, help, unit): About<'_>, value: impl Fn(&Gpu) -> u64) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for gpu in self.gpus {
            metric.encode_family(&gpu.labels())?.encode_gauge(&value(gpu))?;
        }
        Ok(())
    }

    fn info(&mut self) -> fmt::Result {
        let help = "VM with the UUID of its device, which the guest sees, and UUID and number of the GPU.";
        let mut metric = self.encoder.encode_descriptor("vgpu", help, None, MetricType::Info)?;
        for gpu in self.gpus {
            for vm in &gpu.vms {
                let labels = [("vm", vm.name.as_str()), ("device_uuid", &vm.device_uuid)];
                metric.encode_info(&[labels.as_slice(), &gpu.labels()].concat())?;
            }
        }
        Ok(())
    }

    fn overruns(&mut self) -> fmt::Result {
        let help = "Time for which the work of a slice went on after the slice's end.";
        let about = ("vgpu_slice_overrun", help, Some(Unit::Seconds));
        self.vms(about, MetricType::Histogram, |metric, labels, vm| {
            let Overruns { sum_ns, buckets } = vm.overruns;
            let all = buckets.iter().fold(0, |sum: u64, bucket| sum.saturating_add(*bucket));
            let bounds = OVERRUN_BOUNDS.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(buckets).collect();
            let mut histogram = metric.encode_family(labels)?;
            histogram.encode_histogram::<NoLabelSet>(seconds(sum_ns), all, &buckets, None)
        })
    }

    fn write(&mut self) -> fmt::Result {
        let (bytes, time) = (|| Some(Unit::Bytes), || Some(Unit::Seconds));
        self.info()?;
        self.of_gpus(("vgpu_gpu_memory", "Memory that the GPU has.", bytes()), |gpu| gpu.memory)?;
        let help = "Memory that VMs have been promised.";
        self.of_gpus(("vgpu_gpu_memory_promised", help, bytes()), |gpu| gpu.promised)?;
        let help = "Slots of the GPU that are left out, because another one has their VM's name.";
        self.of_gpus(("vgpu_slots_left_out", help, None), |gpu| gpu.left_out)?;
        let help = "Memory that the VM has been promised, contexts included.";
        self.gauge(("vgpu_memory_limit", help, bytes()), |vm| vm.memory_limit)?;
        let help = "Memory that the VM uses, contexts included.";
        self.gauge(("vgpu_memory_used", help, bytes()), |vm| vm.memory_used)?;
        let help = "Time of the GPU that the VM has had. \
                    All VMs of a GPU together have at most one second a second.";
        self.counter(("vgpu_gpu_time", help, time()), |vm| seconds(vm.gpu_time_ns))?;
        let help = "Time for which the VM had work while a slice of another VM ran.";
        self.counter(("vgpu_wait", help, time()), |vm| seconds(vm.waited_ns))?;
        let help = "Weight of the VM's share of the GPU's time.";
        self.gauge(("vgpu_share_weight", help, None), |vm| vm.weight)?;
        let help = "1 if the VM is connected to its device, else 0.";
        self.gauge(("vgpu_connected", help, None), |vm| vm.connected)?;
        let help = "Sessions that the programs of the VM have.";
        self.gauge(("vgpu_sessions", help, None), |vm| vm.sessions)?;
        let help = "Kernels and operations of libraries that the VM has launched, those of graphs included.";
        self.counter(("vgpu_launches", help, None), |vm| vm.launches)?;
        let help = "Bytes that were copied between the VM and the GPU.";
        let about = ("vgpu_copied", help, bytes());
        self.counters(about, "direction", ["h2d", "d2h"], |vm| vm.copied)?;
        let help = "Requests of the VM that were answered with out-of-memory, or failed with it later.";
        self.counter(("vgpu_out_of_memory", help, None), |vm| vm.out_of_memory)?;
        self.overruns()?;
        let help = "Sessions that ended although their program did not ask for it.";
        let about = ("vgpu_sessions_lost", help, None);
        self.counters(about, "reason", ["violation", "worker", "operator"], |vm| vm.lost)?;
        let help = "Times that the VM's gate opened because the node process had ended or hung.";
        self.counter(("vgpu_gate_fallbacks", help, None), |vm| vm.fallbacks)
    }
}

impl Collector for MeasuredGpus {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gpus: Vec<Gpu> = self.all().iter().filter_map(Gpu::read).collect();
        Writer { gpus: &gpus, encoder: &mut encoder }.write()
    }
}
