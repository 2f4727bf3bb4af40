//! A bus to test on.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vgpu_device::{DeviceConfig, DeviceStatus, Executor, GpuConfig, SimBus};
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;
use vgpu_transport::{Device, PciFunction, Session, scan};
use vgpu_wire::Mark;
use vgpu_wire::body::memory::{Address, MemAlloc};
use vgpu_wire::body::session::Echo;
use vgpu_wire::body::stream::Signal;
use zerocopy::{FromZeros, IntoBytes};

/// A folder in memory.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A soft GPU.
pub fn soft(name: &str) -> Arc<dyn Executor> {
    let gpu = GpuConfig { memory_bytes: 1 << 30, ..GpuConfig::new(name).unwrap() };
    Arc::new(Soft::new(&gpu).unwrap())
}

/// A GPU that does nothing.
pub fn null() -> Arc<dyn Executor> {
    Arc::new(Null::new(&GpuConfig::new("null").unwrap()).unwrap())
}

/// Devices in this process.
pub struct Bed {
    bus: SimBus,
    dir: tempfile::TempDir,
}

impl Bed {
    pub fn new(executors: Vec<Arc<dyn Executor>>, change: impl Fn(&mut DeviceConfig)) -> Self {
        let dir = folder();
        let configs = executors.into_iter().enumerate().map(|(index, executor)| {
            let address = format!("0000:00:{:02x}.0", index + 5).parse().unwrap();
            let mut config = DeviceConfig::new(address, executor);
            change(&mut config);
            config
        });
        let bus = SimBus::serve(dir.path(), configs.collect()).unwrap();
        Self { bus, dir }
    }

    pub fn of(executor: Arc<dyn Executor>) -> Self {
        Self::new(vec![executor], |_| {})
    }

    pub fn bus(&self) -> &SimBus {
        &self.bus
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn attach(&self) -> Session {
        attach_in(self.dir())
    }

    pub fn status(&self) -> DeviceStatus {
        self.bus.status().devices.into_iter().next().unwrap()
    }

    /// Takes the device away; the folder stays.
    pub fn stop(self) -> tempfile::TempDir {
        drop(self.bus);
        self.dir
    }
}

pub fn functions(dir: &Path) -> Vec<PciFunction> {
    scan(dir).unwrap()
}

pub fn attach_in(dir: &Path) -> Session {
    Session::attach(Device::open(&functions(dir)[0]).unwrap()).unwrap()
}

/// Makes a round trip, and sees that it was one.
pub fn echo(session: &Session, cookie: u64) {
    let mut back = [0; 8];
    let answer = session.call(Echo { reply: 0, reserved: 0, cookie }, &[], &mut back).unwrap();
    assert_eq!((answer.status, answer.bytes, u64::from_le_bytes(back)), (0, 8, cookie));
}

pub fn signal(mark: Mark) -> Signal {
    Signal { stream: 0, reserved: 0, mark }
}

/// Allocates device memory and returns its address.
pub fn allocate(session: &Session, bytes: u64) -> u64 {
    let mut address = Address::new_zeroed();
    let answer = session.call(MemAlloc { reply: 0, flags: 0, bytes }, &[], address.as_mut_bytes()).unwrap();
    assert_eq!((answer.status, answer.bytes), (0, 8));
    address.address
}

/// Looks again and again until it is so.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < end, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Writes down all notices of this process from now on.
pub fn listen_to_notices() {
    vgpu_transport::listen(|notice| HEARD.lock().unwrap().push(notice.to_string()));
}

/// Whether a notice with these words was heard.
pub fn heard(words: &str) -> bool {
    HEARD.lock().unwrap().iter().any(|notice| notice.contains(words))
}

/// Bytes that are not repeated soon, from a seed.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(bytes + 8);
    while data.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data.truncate(bytes);
    data
}
