//! A device's part in sharing a GPU's time: a thread that has the device's gate follow the orders of the node
//! process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use vgpu_device::{Gate, GateReport, Passage, threads};
use vgpu_share::Holder;
use vgpu_share::arbiter::{FollowEnd, Follower, Step, answer, follow};
use vgpu_share::scheduler::{Answer, Mode, Order};

use crate::figures::AloneTime;
use crate::guest_share::GuestShare;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turns {
    over: Arc<AtomicBool>,
    end: FollowEnd,
    thread: Option<JoinHandle<()>>,
}

impl Turns {
    /// Has `gate` follow the orders in a slot that this process has taken. Tells `alone` when the node
    /// process charges the VM for its time, and `guest` whether there is one.
    pub(crate) fn start(
        slot: &Holder,
        gate: &Arc<Gate>,
        alone: &Arc<AloneTime>,
        guest: &Arc<GuestShare>,
    ) -> io::Result<Self> {
        let told = slot.clone();
        gate.set_listener(Box::new(move |GateReport { turn, work, in_flight }| {
            answer(&told, Answer { turn, work, in_flight });
        }));
        let (over, end) = (Arc::<AtomicBool>::default(), slot.follow_end());
        let (follower, gate, ends) = (Follower::new(slot.clone()), Arc::clone(gate), Arc::clone(&over));
        let (alone, guest) = (Arc::clone(alone), Arc::clone(guest));
        let obey = move || {
            follow(
                follower,
                || !ends.load(Ordering::Acquire),
                |step| {
                    guest.set_enforced(matches!(step, Step::Order(_)));
                    obey(&gate, &alone, step);
                },
            );
        };
        let thread = Some(threads::spawn("turns", obey)?);
        Ok(Self { over, end, thread })
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.end.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

fn obey(gate: &Gate, alone: &AloneTime, step: Step) {
    let Order { turn, mode } = match step {
        Step::Order(order) => order,
        Step::Alone(order) => {
            tracing::warn!(
                "the node process (vgpu-device node) has ended or hangs: the GPU's time is not shared by weights"
            );
            order
        }
    };
    let passage = match mode {
        Mode::Open => Passage::Open,
        Mode::Metered => Passage::Metered,
        Mode::Shut => Passage::Shut,
    };
    gate.arbitrate(turn, passage);
    alone.set_alone(passage == Passage::Open);
}
