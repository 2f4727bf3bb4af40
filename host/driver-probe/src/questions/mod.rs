//! What a driver is asked. Each question is a function of a fresh process with a context of its own.

mod code;
mod holds;
mod memory;
mod stream;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::driver::{CallError, Driver};

/// A question, with the name that it has on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Name, versions, memory and attributes of the first device.
    Facts,
    /// Where and in which sizes device addresses can be reserved.
    Reservations,
    /// Which memory of the host can be registered, and what it costs.
    Registrations,
    /// Whether a word that a stream writes is visible only after the copy before it.
    WordOrder,
    /// How a capture reports programmatic dependencies.
    ProgrammaticEdges,
    /// What calls return after a kernel's illegal access.
    CodesAfterAFault,
    /// What a launch costs alone, and beside a thread that polls an event or a word.
    LaunchCost,
    /// Which calls wait while a stream is held.
    CallsBehindAHold,
    /// How many launches a held stream takes, and whether another stream still runs then.
    QueueDepth,
    /// How long releasing memory and destroying a context take.
    Teardown,
    /// How long the end of a process with memory takes.
    EndWithMemory,
}

impl Question {
    /// All questions, in the order in which they are asked.
    pub const ALL: [Self; 11] = [
        Self::Facts,
        Self::Reservations,
        Self::Registrations,
        Self::WordOrder,
        Self::ProgrammaticEdges,
        Self::CodesAfterAFault,
        Self::LaunchCost,
        Self::CallsBehindAHold,
        Self::QueueDepth,
        Self::Teardown,
        Self::EndWithMemory,
    ];

    /// Returns the time after which the question's process is killed.
    pub(crate) const fn limit(self) -> Duration {
        // A call that waits for a held stream is waited for twice; one that hangs ends the question.
        Duration::from_secs(if matches!(self, Self::CallsBehindAHold) { 40 } else { 20 })
    }

    pub(crate) fn answer(self, driver: Driver) -> Result<Value, CallError> {
        match self {
            Self::Facts => facts(&driver),
            Self::Reservations => memory::reservations(&driver),
            Self::Registrations => memory::registrations(&driver),
            Self::WordOrder => stream::word_order(&driver),
            Self::ProgrammaticEdges => stream::programmatic_edges(&driver),
            Self::CodesAfterAFault => code::codes_after_a_fault(&driver),
            Self::LaunchCost => code::launch_cost(driver),
            Self::CallsBehindAHold => holds::calls_behind_a_hold(driver),
            Self::QueueDepth => holds::queue_depth(driver),
            Self::Teardown => memory::teardown(&driver),
            Self::EndWithMemory => memory::end_with_memory(&driver),
        }
    }
}

/// Ids of attributes that are asked for. Those of CUDA 13 end at 145.
const ATTRIBUTES: std::ops::Range<i32> = 1..160;

fn facts(driver: &Driver) -> Result<Value, CallError> {
    let attributes =
        ATTRIBUTES.filter_map(|id| Some((id.to_string(), Value::from(driver.attribute(id).ok()?))));
    Ok(json!({
        "gpu": driver.name()?,
        "cuDriverGetVersion": driver.version()?,
        "total_mib": driver.total()? >> 20,
        "free_mib": driver.free_memory().ok().map(|free| free >> 20),
        "granularity": driver.granularity()?,
        "attributes": attributes.collect::<serde_json::Map<_, _>>(),
    }))
}
