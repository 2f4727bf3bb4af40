//! A device's part in sharing a GPU's time: a thread that has the device's gate follow the orders of the node
//! process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use vgpu_device::{Gate, GateMode, GateReport, threads};
use vgpu_share::SlotView;
use vgpu_share::arbiter::{FollowEnd, OrderChange, OrderFollower, answer, follow};
use vgpu_share::scheduler::{Answer, Mode, Order};

use crate::figures::UncontendedTime;
use crate::guest_share::GuestShare;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ArbiterClient {
    over: Arc<AtomicBool>,
    end: FollowEnd,
    thread: Option<JoinHandle<()>>,
}

impl ArbiterClient {
    /// Has `gate` follow the orders in a slot that this process has taken. Tells `alone` when the node
    /// process charges the VM for its time, and `guest` whether there is one.
    pub(crate) fn start(
        slot: &SlotView,
        gate: &Arc<Gate>,
        alone: &Arc<UncontendedTime>,
        guest: &Arc<GuestShare>,
    ) -> io::Result<Self> {
        let told = slot.clone();
        gate.set_listener(Box::new(move |GateReport { turn, work, in_flight }| {
            answer(&told, Answer { turn, work, in_flight });
        }));
        let (over, end) = (Arc::<AtomicBool>::default(), slot.follow_end());
        let (follower, gate, ends) = (OrderFollower::new(slot.clone()), Arc::clone(gate), Arc::clone(&over));
        let (alone, guest) = (Arc::clone(alone), Arc::clone(guest));
        let obey = move || {
            follow(
                follower,
                || !ends.load(Ordering::Acquire),
                |step| {
                    guest.set_enforced(matches!(step, OrderChange::Order(_)));
                    obey(&gate, &alone, step);
                },
            );
        };
        let thread = Some(threads::spawn("turns", obey)?);
        Ok(Self { over, end, thread })
    }
}

impl Drop for ArbiterClient {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.end.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

fn obey(gate: &Gate, alone: &UncontendedTime, step: OrderChange) {
    let Order { turn, mode } = match step {
        OrderChange::Order(order) => order,
        OrderChange::Alone(order) => {
            tracing::warn!(
                "the node process (vgpu-device node) has ended or hangs: the GPU's time is not shared by weights"
            );
            order
        }
    };
    let passage = match mode {
        Mode::Open => GateMode::Open,
        Mode::Metered => GateMode::Metered,
        Mode::Shut => GateMode::Shut,
    };
    gate.arbitrate(turn, passage);
    alone.set_alone(passage == GateMode::Open);
}
