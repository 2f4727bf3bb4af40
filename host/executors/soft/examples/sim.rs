//! Serves a directory that looks like sysfs and contains VGPU-STUB devices:
//!
//! ```text
//! sim DIR [--cc 6.1] [--memory 8G] [--devices N] [--executor null|soft] [--name NAME] [--uuid GPU-...]
//!         [--window 256M] [--channels 64] [--driver 13000] [--driver-text 580.65.06]
//! ```
//! Prints "ready" when guests can attach; ends by SIGTERM, SIGINT, or the control socket's `exit`.

use std::collections::HashMap;
use std::error::Error;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vgpu_device::{
    DeviceConfig, Executor, GpuConfig, PciAddress, SimBus, parse_bytes, parse_compute_capability, parse_uuid,
};
use vgpu_executor_null::Null;
use vgpu_executor_soft::{NAME, Soft};

/// PCI slot of the first device. Further devices have the following slots.
const FIRST_SLOT: u8 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_ansi(colours).with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("a folder must be named")?;
    let mut options = HashMap::new();
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        options.insert(name, value);
    }
    let count: u8 = options.remove("--devices").as_deref().unwrap_or("1").parse()?;
    let executor = options.remove("--executor").unwrap_or_else(|| "soft".to_owned());
    let window = options.remove("--window");
    let channels = options.remove("--channels");
    let mut gpus = Vec::new();
    for _ in 0..count {
        gpus.push(GpuConfig::new(NAME)?);
    }
    for (name, value) in options {
        let bad = || format!("{name} {value} is not understood");
        for gpu in &mut gpus {
            match name.as_str() {
                "--cc" => gpu.compute_capability = parse_compute_capability(&value).ok_or_else(bad)?,
                "--memory" => gpu.memory_bytes = parse_bytes(&value).ok_or_else(bad)?,
                "--name" => gpu.name.clone_from(&value),
                "--uuid" => gpu.uuid = parse_uuid(&value).ok_or_else(bad)?,
                "--driver" => gpu.driver_version = value.parse()?,
                "--driver-text" => gpu.driver_text.clone_from(&value),
                _ => return Err(bad().into()),
            }
        }
    }
    let mut configs = Vec::new();
    for (index, gpu) in gpus.iter().enumerate() {
        let address = PciAddress { domain: 0, bus: 0, device: FIRST_SLOT + index as u8, function: 0 };
        let executor: Arc<dyn Executor> = match executor.as_str() {
            "soft" => Arc::new(Soft::new(gpu)?),
            "null" => Arc::new(Null::new(gpu)?),
            other => return Err(format!("there is no executor {other}").into()),
        };
        let mut config = DeviceConfig::new(address, executor);
        if let Some(window) = &window {
            config.window_bytes = parse_bytes(window).ok_or("the window's size is not understood")?;
        }
        if let Some(channels) = &channels {
            config.channels = channels.parse()?;
        }
        configs.push(config);
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let bus = SimBus::serve(Path::new(&folder), configs)?;
    println!("ready");
    let (handle, exit) = (signals.handle(), bus.exit_handle());
    let waiter = thread::spawn(move || {
        // One signal is enough; the iterator also ends when it is closed.
        if signals.forever().next().is_some() {
            exit.request();
        }
    });
    let _ = bus.wait_for_exit(None);
    handle.close();
    drop(bus);
    waiter.join().map_err(|_| "the signal thread panicked")?;
    Ok(())
}
