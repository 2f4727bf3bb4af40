//! Fault-injection options of devices and mediators.

use std::time::Duration;

use vgpu_device::TestHooks;
use vgpu_device_v1::{self as v1, BusTestHooks};
use vgpu_serve::Knobs;

use super::injection::{self, InjectedFault};

/// Fault-injection options of devices and mediators.
#[derive(clap::Args)]
#[command(next_help_heading = "Options for tests")]
pub struct KnobOptions {
    /// A fault to inject: register:OFFSET=VALUE, facts:zero (no-capability, no-driver), open:refuse, or
    /// KIND:drop (fail=CODE, lose, hang, flip, park=FILE) for messages of a kind. Can be given several times.
    /// A mediator has no registers.
    #[arg(long, value_name = "WHAT")]
    pub wrong: Vec<InjectedFault>,
    /// Have the soft executor execute independent streams in an order that CUDA allows but no program
    /// expects, drawn from this seed.
    #[arg(long, value_name = "SEED")]
    adversarial: Option<u64>,
    /// Have the soft executor charge each session device memory for a context, such as 300M, and each module
    /// the size of its image, as a driver does with a GPU's memory.
    #[arg(long, value_name = "SIZE", value_parser = vgpu_serve::parse_size)]
    context_memory: Option<u64>,
}

/// Options that make a device of version 1 answer slowly, or announce another protocol version.
#[derive(clap::Args)]
#[command(next_help_heading = "Options for tests of version 1")]
pub struct V1KnobOptions {
    /// Duration of each BAR access, such as 88us, to imitate an exit of a virtual machine.
    #[arg(long, default_value = "0", value_parser = duration)]
    access_cost: Duration,
    /// Value of the protocol version register, such as 0x20000, a version that no guest knows.
    #[arg(long, value_name = "VALUE", value_parser = register)]
    protocol_register: Option<u32>,
}

/// Parses a register's value.
fn register(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").ok_or("expected a value such as 0x20000")?;
    u32::from_str_radix(digits, 16).map_err(|error| error.to_string())
}

/// Parses a duration such as "88us" or "1ms"; a plain number is in microseconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" | "" => 1e-6,
        "ms" => 1e-3,
        _ => f64::NAN,
    };
    let number: f64 = digits.parse().unwrap_or(f64::NAN);
    Duration::try_from_secs_f64(number * unit)
        .map_err(|_| "expected a time such as 88us, 500ns, 1ms".to_owned())
}

impl KnobOptions {
    /// Returns the knobs that these options select.
    pub fn knobs(&self) -> Knobs {
        let faults = self.wrong.clone();
        Knobs {
            device: TestHooks { registers: injection::registers(&self.wrong) },
            adversarial: self.adversarial,
            context_bytes: self.context_memory.unwrap_or(0),
            wrap: Some(Box::new(move |executor| injection::inject(executor, &faults))),
            ..Knobs::default()
        }
    }
}

impl V1KnobOptions {
    /// Returns the version 1 hooks that these options select.
    pub fn hooks(&self) -> BusTestHooks {
        BusTestHooks {
            device: v1::TestHooks { protocol: self.protocol_register },
            access_cost: self.access_cost,
            ..BusTestHooks::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(duration("88us"), Ok(Duration::from_micros(88)));
        assert_eq!(duration("10"), Ok(Duration::from_micros(10)));
        assert_eq!(duration("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(duration("500ns"), Ok(Duration::from_nanos(500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for bad in ["", "us", "-1", "1s", "1e99", "x"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
