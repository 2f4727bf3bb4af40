//! A link whose other end is the test. It keeps the calls that the device sends, and the test chooses the
//! answers.

use std::io;
use std::sync::{Arc, Mutex};

use vgpu_device_v1::{Delivery, Inlet, Link, LinkError, Properties, Submission};
use vgpu_wire::v1::frame::{MAGIC, Outcome};
use zerocopy::{FromZeros, IntoBytes};

use crate::driver::{Guest, bare};

/// Fate of the next calls that the device sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    #[default]
    Sent,
    Unreachable,
    Fails,
}

#[derive(Debug, Default)]
pub struct Kept {
    pub sent: Mutex<Vec<Submission>>,
    pub fate: Mutex<Fate>,
}

#[derive(Debug)]
struct Keeper(Arc<Kept>);

impl Link for Keeper {
    fn send(&self, submission: Submission) -> Result<u64, LinkError> {
        match *self.0.fate.lock().unwrap() {
            Fate::Sent => {
                self.0.sent.lock().unwrap().push(submission);
                Ok(1)
            }
            Fate::Unreachable => Err(LinkError::Unreachable(io::ErrorKind::NotFound.into())),
            Fate::Fails => Err(LinkError::Send(io::ErrorKind::TimedOut.into())),
        }
    }
}

/// A device whose mediator is the test.
pub struct Bench {
    pub guest: Guest,
    pub kept: Arc<Kept>,
    pub inlet: Inlet,
}

impl Bench {
    pub fn new(properties: Properties) -> Self {
        let guest = bare(properties);
        let kept = Arc::<Kept>::default();
        guest.device.attach(Box::new(Keeper(Arc::clone(&kept))));
        let inlet = guest.device.inlet();
        Self { guest, kept, inlet }
    }

    /// Returns the newest call.
    pub fn last(&self) -> Submission {
        self.kept.sent.lock().unwrap().last().expect("a call was sent").clone()
    }

    /// Submits the staged call again and returns the payload of the newest call.
    pub fn submitted(&mut self, op: u32, bytes: usize) -> Vec<u8> {
        self.guest.submit(op, &[], bytes);
        self.last().data
    }

    pub fn fate(&self, fate: Fate) {
        *self.kept.fate.lock().unwrap() = fate;
    }

    pub fn answer(&self, request_id: u32, payload: &[u8]) {
        assert!(self.inlet.deliver(Delivery::result(request_id, payload)));
    }

    /// Delivers an answer to the newest call.
    pub fn answer_last(&self, status: u32, results: &[u64], data: &[u8]) {
        let last = self.last();
        self.answer(last.header.request_id.get(), &outcome(last.call.seq.get(), status, results, data));
    }
}

/// Returns the payload of a result's frame.
pub fn outcome(seq: u32, status: u32, results: &[u64], data: &[u8]) -> Vec<u8> {
    let mut outcome = Outcome::new_zeroed();
    outcome.magic = MAGIC.into();
    outcome.seq = seq.into();
    outcome.status = status.into();
    outcome.num_results = (results.len() as u32).into();
    outcome.data_len = (data.len() as u32).into();
    for (to, from) in outcome.results.iter_mut().zip(results) {
        *to = (*from).into();
    }
    [outcome.as_bytes(), data].concat()
}
