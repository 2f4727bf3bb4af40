//! The arbiter with devices that are threads of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::words::NodeWords;
use super::*;
use crate::scheduler::{Answer, Mode, Order};
use crate::{Claim, GpuMemory, GpuShare, GpuUuid, Gpus, Slot};

const PATIENCE: Duration = Duration::from_mins(1);
/// Slices that do not end while a test acts.
const LONG: NodeOptions = NodeOptions { slice: Duration::from_millis(500) };

fn gpu() -> (TempDir, GpuShare) {
    let dir = tempfile::tempdir().unwrap();
    let gpus = Gpus::open(&dir.path().join("gpus")).unwrap();
    let uuid: GpuUuid = "GPU-00112233-4455-6677-8899-aabbccddeeff".parse().unwrap();
    let gpu = gpus.gpu(uuid).unwrap();
    (dir, gpu)
}

fn claim(gpu: &GpuShare, name: &str) -> Slot {
    let memory = GpuMemory { bytes: 1 << 30, reserve: 0 };
    gpu.claim(&Claim {
        name,
        promised: Some(1),
        overhead: 0,
        context_bytes: 0,
        weight: 1,
        memory,
        patience: Duration::ZERO,
    })
    .unwrap()
}

/// A device that follows orders, and whose steps a test sees.
struct Device {
    slot: Slot,
    steps: Receiver<OrderChange>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    fn new(gpu: &GpuShare, name: &str) -> Self {
        let slot = claim(gpu, name);
        let (to, steps) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let (follower, ends) = (OrderFollower::new(slot.seen().clone()), Arc::clone(&over));
        let run = move || {
            follow(
                follower,
                || !ends.load(Ordering::SeqCst),
                |step| {
                    let _ = to.send(step);
                },
            );
        };
        Self { slot, steps, over, thread: Some(thread::spawn(run)) }
    }

    fn next(&self) -> OrderChange {
        self.steps.recv_timeout(PATIENCE).expect("a step")
    }

    /// Answers an order.
    fn answers(&self, step: OrderChange, work: bool, in_flight: bool) {
        let OrderChange::Order(Order { turn, .. }) = step else { panic!("{step:?}") };
        answer(self.slot.seen(), Answer { turn, work, in_flight });
    }

    fn ordered(&self, mode: Mode) -> OrderChange {
        loop {
            let step = self.next();
            if matches!(step, OrderChange::Order(order) if order.mode == mode) {
                return step;
            }
        }
    }
}

impl Device {
    /// Waits until messages pass, by the last order of a node process or because it has ended.
    fn until_free(&self) {
        loop {
            if let OrderChange::Alone(order) | OrderChange::Order(order) = self.next()
                && order.mode == Mode::Open
            {
                return;
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.slot.seen().follow_end().wake();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// An arbiter, and the thread that runs it.
type Running = (Arc<Node>, JoinHandle<Result<(), NodeError>>);

fn run(gpu: &GpuShare) -> Running {
    run_with(gpu, NodeOptions::default())
}

fn run_with(gpu: &GpuShare, options: NodeOptions) -> Running {
    let node = Node::new(gpu.clone(), options);
    let running = Arc::clone(&node);
    (node, thread::spawn(move || running.run()))
}

/// Returns two devices with work: the first has worked alone, and the second has just said that it has some.
fn with_work(gpu: &GpuShare, options: NodeOptions) -> (Device, Device, Running) {
    let (one, other) = (Device::new(gpu, "one"), Device::new(gpu, "other"));
    let running = run_with(gpu, options);
    let (first, second) = (one.ordered(Mode::Metered), other.ordered(Mode::Metered));
    one.answers(first, true, true);
    one.ordered(Mode::Open);
    other.answers(second, true, true);
    (one, other, running)
}

#[test]
fn two_devices_with_work_are_served_in_turns_and_are_free_when_the_node_ends() {
    let (_dir, gpu) = gpu();
    let (one, other, (node, thread)) = with_work(&gpu, LONG);
    // The one that worked alone has had its slice.
    let shut = one.ordered(Mode::Shut);
    one.answers(shut, true, false);
    let granted = other.ordered(Mode::Metered);
    other.answers(granted, true, true);
    let shut = other.ordered(Mode::Shut);
    let granted = |step| matches!(step, OrderChange::Order(order) if order.mode == Mode::Metered);
    assert!(!one.steps.try_iter().any(granted), "the other's work is in flight");
    other.answers(shut, true, false);
    one.ordered(Mode::Metered);
    let had = |device: &Device| (device.slot.seen().charged_ns(), device.slot.seen().waited_ns());
    assert!(had(&one).0 > 0 && had(&one).1 > 0 && had(&other).0 > 0);
    // The answers to the ends of both slices took some time. The node counts it beside its orders.
    for device in [&one, &other] {
        let start = Instant::now();
        let counted = || {
            let overruns = device.slot.seen().overruns();
            overruns.sum_ns > 0 && overruns.buckets.iter().sum::<u64>() == 1
        };
        while !counted() {
            assert!(start.elapsed() < PATIENCE, "{:?}", device.slot.seen().overruns());
            thread::yield_now();
        }
    }
    node.stop();
    thread.join().unwrap().unwrap();
    one.until_free();
    other.until_free();
    // The next node process goes on counting.
    let before = [had(&one), had(&other)];
    let (next, thread) = run_with(&gpu, LONG);
    let start = Instant::now();
    while had(&one).0 == before[0].0 {
        assert!(start.elapsed() < PATIENCE, "the work of the first is not charged");
        thread::yield_now();
    }
    assert!(had(&one).0 > before[0].0 && had(&other).1 >= before[1].1);
    // A device that takes the slot meanwhile starts at 0.
    drop(one);
    let one = claim(&gpu, "new");
    assert_eq!(one.seen().index(), 0);
    for _ in 0..100 {
        assert_eq!((one.seen().charged_ns(), one.seen().waited_ns()), (0, 0));
        NodeWords(&gpu).ring();
        thread::yield_now();
    }
    next.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn gates_open_when_the_node_hangs() {
    let (_dir, gpu) = gpu();
    let (_one, other, (node, thread)) = with_work(&gpu, LONG);
    other.ordered(Mode::Shut);
    // Devices look after 80 ms at the latest; this machine's processors may be busy, but not each time.
    let mut times = Vec::new();
    while times.last().is_none_or(|&took| took >= Duration::from_secs(1)) {
        assert!(times.len() < 5, "{times:?}");
        let start = Instant::now();
        // With its lock held, the node process can neither decide nor beat.
        node.while_stopped(|| {
            loop {
                if let OrderChange::Alone(order) = other.next() {
                    assert_eq!(order.mode, Mode::Open);
                    break;
                }
            }
            times.push(start.elapsed());
        });
        // It goes on.
        assert!(matches!(other.next(), OrderChange::Order(_)));
    }
    assert!(other.slot.seen().fallbacks() >= 1);
    node.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn a_gpu_has_one_node_process() {
    let (_dir, gpu) = gpu();
    let device = Device::new(&gpu, "one");
    let (node, thread) = run(&gpu);
    device.ordered(Mode::Metered);
    let (_, second) = run(&gpu);
    assert!(matches!(second.join().unwrap(), Err(NodeError::Taken(_))));
    node.stop();
    thread.join().unwrap().unwrap();
    let (node, thread) = run(&gpu);
    device.ordered(Mode::Metered);
    node.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn a_device_that_is_gone_keeps_nobody_waiting() {
    let (_dir, gpu) = gpu();
    let (one, other, (node, thread)) = with_work(&gpu, NodeOptions::default());
    other.ordered(Mode::Shut);
    drop(one);
    other.ordered(Mode::Metered);
    // Alone again, it is neither charged nor waited for.
    other.ordered(Mode::Open);
    node.stop();
    thread.join().unwrap().unwrap();
}
