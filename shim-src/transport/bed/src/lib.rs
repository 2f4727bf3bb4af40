//! Support for tests of the transport: simulated devices in this process, sessions on them, and other
//! processes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vgpu_device::{DeviceConfig, DeviceStatus, Executor, GpuConfig, SimBus};
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;
use vgpu_transport::bridge::OpenBridge;
use vgpu_transport::{Device, PciFunction, Session, scan};
use vgpu_wire::Mark;
use vgpu_wire::body::copy::Fill;
use vgpu_wire::body::memory::{Address, MemAlloc};
use vgpu_wire::body::session::Echo;
use vgpu_wire::body::stream::Signal;
use zerocopy::{FromZeros, IntoBytes};

/// Creates a directory in memory.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Creates a soft GPU with this product name.
pub fn soft(name: &str) -> Arc<dyn Executor> {
    let gpu = GpuConfig { memory_bytes: 1 << 30, ..GpuConfig::new(name).unwrap() };
    Arc::new(Soft::new(&gpu).unwrap())
}

/// Creates an executor that performs no work.
pub fn null() -> Arc<dyn Executor> {
    Arc::new(Null::new(&GpuConfig::new("null").unwrap()).unwrap())
}

/// Simulated devices served by this process.
#[derive(Debug)]
pub struct Bed {
    bus: SimBus,
    dir: tempfile::TempDir,
}

impl Bed {
    /// Serves a device for each executor, at addresses from 0000:00:05.0 on. `change` changes the
    /// configuration of each.
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

    /// Serves one device with this executor.
    pub fn of(executor: Arc<dyn Executor>) -> Self {
        Self::new(vec![executor], |_| {})
    }

    /// Returns the bus that serves the devices.
    pub fn bus(&self) -> &SimBus {
        &self.bus
    }

    /// Returns the directory that looks like sysfs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Attaches to the first device.
    pub fn attach(&self) -> Session {
        attach_in(self.dir())
    }

    /// Returns the status of the first device.
    pub fn status(&self) -> DeviceStatus {
        self.bus.status().devices.into_iter().next().unwrap()
    }

    /// Stops the devices and returns their directory.
    pub fn stop(self) -> tempfile::TempDir {
        drop(self.bus);
        self.dir
    }
}

/// Returns the functions that a guest finds.
pub fn functions(dir: &Path) -> Vec<PciFunction> {
    scan(dir).unwrap()
}

/// Attaches to the first function, which has version 2.
pub fn attach_in(dir: &Path) -> Session {
    attach_with(dir, None)
}

/// Attaches to the first function, which has version 2 unless a bridge is given.
pub fn attach_with(dir: &Path, bridge: Option<OpenBridge>) -> Session {
    Session::attach(Device::open(&functions(dir)[0], bridge).unwrap()).unwrap()
}

/// Copies bytes to the device.
pub fn copy_in(session: &Session, address: u64, source: &[u8]) {
    // SAFETY: a slice is readable.
    unsafe { session.copy_in(0, address, source.as_ptr(), source.len()) }.unwrap();
}

/// Copies bytes from the device.
pub fn copy_out(session: &Session, address: u64, bytes: usize) -> Vec<u8> {
    let mut target = vec![0xcc; bytes];
    // SAFETY: the vector has that many bytes and is used by nobody else.
    unsafe { session.copy_out(0, address, target.as_mut_ptr(), bytes) }.unwrap();
    target
}

/// Fills `width` elements of device memory.
pub fn fill(session: &Session, destination: u64, element: u32, value: u32, width: u64) {
    let fill = Fill { stream: 0, value, element, reserved: 0, destination, pitch: 0, width, height: 1 };
    session.send(&fill, &[]).unwrap();
}

/// Makes a round trip and checks that the cookie comes back.
pub fn echo(session: &Session, cookie: u64) {
    let mut back = [0; 8];
    let answer = session.call(Echo { reply: 0, reserved: 0, cookie }, &[], &mut back).unwrap();
    assert_eq!((answer.status, answer.bytes, u64::from_le_bytes(back)), (0, 8, cookie));
}

/// Returns a message that makes the host store a mark.
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

/// Waits until `so` returns true. Panics after a minute.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !so() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records all notices of this process from now on.
pub fn listen_to_notices() {
    vgpu_transport::listen(|notice| HEARD.lock().unwrap().push(notice.to_string()));
}

/// Returns whether a notice that contains this text was recorded.
pub fn heard(words: &str) -> bool {
    HEARD.lock().unwrap().iter().any(|notice| notice.contains(words))
}

/// Returns bytes that are derived from a seed and do not repeat soon.
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

/// A process that runs a role of a test. It is killed on drop if it is still running.
#[derive(Debug)]
pub struct Role {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Role {
    /// Starts a role and waits until it reports that it is ready.
    pub fn start(part: &str, dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["roles::part", "--exact", "--nocapture"])
            .env("VGPU_TEST_PART", part)
            .env("VGPU_TEST_DIR", dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut role = Self { child, stdin, lines };
        assert_eq!(role.said(), "ready");
        role
    }

    /// Returns the next word that the process reports.
    pub fn said(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the process ended without a word");
            // The test harness prints lines too.
            if let Some((_, word)) = line.trim_end().split_once('@') {
                return word.to_owned();
            }
        }
    }

    /// Lets the process continue.
    pub fn go_on(&mut self) {
        drop(self.stdin.take());
    }

    /// Waits for the process and returns its exit code.
    pub fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process and waits until it has ended.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the process until [`Role::resume`].
    pub fn pause(&self) {
        let mut status = 0;
        // SAFETY: stops the process started above.
        unsafe { libc::kill(self.id() as i32, libc::SIGSTOP) };
        // SAFETY: waits until all its threads have stopped; the process itself is left to be waited for.
        unsafe { libc::waitpid(self.id() as i32, &raw mut status, libc::WUNTRACED) };
        assert!(libc::WIFSTOPPED(status));
    }

    /// Resumes the process after [`Role::pause`].
    pub fn resume(&self) {
        // SAFETY: lets the process go on.
        unsafe { libc::kill(self.id() as i32, libc::SIGCONT) };
    }

    /// Waits until the process exits, and checks that it succeeded.
    pub fn end(&mut self) {
        self.go_on();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reports a word to the process that started this one.
pub fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "@{word}").unwrap();
    out.flush().unwrap();
}

/// Waits until the test lets this process continue, or until the test has ended.
pub fn stay() {
    let _ = std::io::stdin().lock().lines().next();
}
