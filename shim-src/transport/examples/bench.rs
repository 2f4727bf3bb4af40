//! Measures the transport against a simulated device in another process: round trips, launches, copies.
//!
//! `cargo run --release -p vgpu-transport --example bench [-- rtt|idle|state|launch|attach|copy]`

#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_device::{DeviceConfig, Executor, GpuConfig, SimBus};
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;
use vgpu_transport::{Device, Session, scan};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{Address, MemAlloc};
use vgpu_wire::body::session::Echo;
use zerocopy::{FromZeros, IntoBytes};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, dir, executor] = &arguments[..]
        && role == "device"
    {
        return serve(Path::new(dir), executor);
    }
    let wants = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    if wants("rtt") {
        rtt()?;
    }
    if wants("idle") {
        idle()?;
    }
    if wants("state") {
        state()?;
    }
    if wants("launch") {
        launch()?;
    }
    if wants("attach") {
        attach_time()?;
    }
    if wants("copy") {
        copies()?;
    }
    Ok(())
}

fn serve(dir: &Path, executor: &str) -> Outcome<()> {
    let gpu = GpuConfig { memory_bytes: 1 << 30, ..GpuConfig::new("bench")? };
    let executor: Arc<dyn Executor> =
        if executor == "soft" { Arc::new(Soft::new(&gpu)?) } else { Arc::new(Null::new(&gpu)?) };
    let _bus = SimBus::serve(dir, vec![DeviceConfig::new("0000:00:05.0".parse()?, executor)])?;
    println!("ready");
    std::io::stdout().flush()?;
    // Ends with the process that started it.
    let _ = std::io::stdin().lines().next();
    Ok(())
}

struct Bed {
    dir: tempfile::TempDir,
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Bed {
    fn new(executor: &str) -> Outcome<Self> {
        let dir = tempfile::tempdir_in("/dev/shm")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["device".as_ref(), dir.path().as_os_str(), executor.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
        Ok(Self { dir, child, stdin })
    }

    fn attach(&self) -> Outcome<Session> {
        let functions = scan(self.dir.path())?;
        Ok(Session::attach(Device::open(functions.first().ok_or("no device")?, None)?)?)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn echo(session: &Session) -> Outcome<Duration> {
    let start = Instant::now();
    let mut cookie = [0; 8];
    session.call(Echo { reply: 0, reserved: 0, cookie: 7 }, &[], &mut cookie)?;
    Ok(start.elapsed())
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{name}: median {:?}, 10% {:?}, 90% {:?}, 99% {:?}, worst {:?} ({} times)",
        at(0.5),
        at(0.1),
        at(0.9),
        at(0.99),
        at(1.0),
        times.len()
    );
}

fn rtt() -> Outcome<()> {
    let bed = Bed::new("null")?;
    let session = bed.attach()?;
    for _ in 0..10_000 {
        echo(&session)?;
    }
    let times: Result<Vec<_>, _> = (0..200_000).map(|_| echo(&session)).collect();
    report("round trip, both spin", times?);
    let counters = session.counters();
    println!("  waits {} sleeps {} doorbells {}", counters.waits, counters.sleeps, counters.doorbells);
    Ok(())
}

fn idle() -> Outcome<()> {
    let bed = Bed::new("null")?;
    let session = bed.attach()?;
    let mut times = Vec::new();
    for _ in 0..300 {
        std::thread::sleep(Duration::from_millis(3));
        times.push(echo(&session)?);
    }
    report("round trip after 3 ms of silence", times);
    let counters = session.counters();
    println!("  waits {} sleeps {} doorbells {}", counters.waits, counters.sleeps, counters.doorbells);
    Ok(())
}

fn state() -> Outcome<()> {
    const COUNT: u32 = 10_000_000;
    let bed = Bed::new("null")?;
    let session = bed.attach()?;
    let word = session.word().ok_or("no word")?;
    let messages = session.counters().messages;
    let time = |name: &str, what: &dyn Fn() -> bool| {
        let start = Instant::now();
        for _ in 0..COUNT {
            assert!(std::hint::black_box(what()));
        }
        println!("{name}: {:.1} ns", start.elapsed().as_nanos() as f64 / f64::from(COUNT));
    };
    time("late_error", &|| session.late_error().is_none());
    time("word_value", &|| session.word_value(word.index()) == 0);
    time("check", &|| session.check().is_ok());
    assert_eq!(session.counters().messages, messages, "no message was sent");
    Ok(())
}

fn launch() -> Outcome<()> {
    const COUNT: u64 = 4_000_000;
    let bed = Bed::new("null")?;
    let session = bed.attach()?;
    let params = [7u8; 100];
    let mut body = Launch::new_zeroed();
    body.function = 1;
    body.grid = [1, 1, 1];
    body.block = [32, 1, 1];
    body.param_bytes = 100;
    for round in 0..5 {
        let before = session.counters();
        let start = Instant::now();
        let mut last = 0;
        for _ in 0..COUNT {
            last = session.send(&body, &[&params])?;
        }
        let sent = start.elapsed();
        while session.done() < last {
            session.check()?;
            std::hint::spin_loop();
        }
        let done = start.elapsed();
        let counters = session.counters();
        println!(
            "launches of 100 bytes, round {round}: sent {:.2} M/s, done {:.2} M/s; waits {} sleeps {} doorbells {}",
            COUNT as f64 / sent.as_secs_f64() / 1e6,
            COUNT as f64 / done.as_secs_f64() / 1e6,
            counters.waits - before.waits,
            counters.sleeps - before.sleeps,
            counters.doorbells - before.doorbells,
        );
    }
    Ok(())
}

fn attach_time() -> Outcome<()> {
    let bed = Bed::new("null")?;
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..200 {
        let mut start = Instant::now();
        let mut lap = || std::mem::replace(&mut start, Instant::now()).elapsed();
        let functions = scan(bed.dir.path())?;
        let scanned = lap();
        let device = Device::open(functions.first().ok_or("no device")?, None)?;
        let opened = lap();
        let session = Session::attach(device)?;
        let attached = lap();
        drop(session);
        let steps = [scanned, opened, attached, lap()];
        for (times, step) in times.iter_mut().zip(steps) {
            times.push(step);
        }
    }
    for (name, times) in ["scan", "open", "attach", "close"].into_iter().zip(times) {
        report(name, times);
    }
    Ok(())
}

fn copies() -> Outcome<()> {
    let bed = Bed::new("soft")?;
    let session = bed.attach()?;
    let bytes = 64 << 20;
    let mut address = Address::new_zeroed();
    let answer =
        session.call(MemAlloc { reply: 0, flags: 0, bytes: bytes as u64 }, &[], address.as_mut_bytes())?;
    assert_eq!(answer.status, 0, "allocation");
    let source = vec![1u8; bytes];
    let mut target = vec![0u8; bytes];
    for size in [4, 4096, 16 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20, 64 << 20] {
        let times = (256 << 20) / size.max(64 << 10);
        let mut rates = Vec::new();
        for out in [false, false, true, true] {
            let start = Instant::now();
            for _ in 0..times {
                if out {
                    // SAFETY: the vector has that many bytes and is used by nobody else.
                    unsafe { session.copy_out(0, address.address, target.as_mut_ptr(), size) }?;
                } else {
                    // SAFETY: the vector has that many bytes.
                    unsafe { session.copy_in(0, address.address, source.as_ptr(), size) }?;
                }
            }
            // Until the last is really there.
            echo(&session)?;
            let took = start.elapsed();
            rates.push((times * size) as f64 / took.as_secs_f64() / 1e9);
            rates.push(took.as_secs_f64() / times as f64 * 1e6);
        }
        println!(
            "copies of {size:>8}: in {:.2} GB/s ({:.1} us each), out {:.2} GB/s ({:.1} us each)",
            rates[2], rates[3], rates[6], rates[7]
        );
    }
    assert_eq!(source, target);
    println!("  {:?}", session.counters());
    Ok(())
}
