//! `vgpu-testbed bench wait`: how long a program waits for the device after a launch, and the processor time
//! that the wait costs each process, beside other programs that keep processors busy. Threads of the machine's
//! own that hand a word on in a ring show what a wait costs here without a device.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_to_string};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use vgpu_testbed::bed::Bed;
use vgpu_testbed::machine::{GuestMachine, Options};
use vgpu_testbed::programs;

use super::measure::facts;

/// Compute capability of the device, for which every executor takes the kernel.
const CC: &str = "7.0";
/// Name of the null executor's thread that imitates a GPU. Its time is listed by itself.
const GPU_THREAD: &str = "simulated-gpu";
/// Limit of the stand-in's run in a guest, whose processor is emulated.
const GUEST_LIMIT: Duration = Duration::from_mins(5);

/// Options of `bench wait`.
#[derive(clap::Args)]
pub struct WaitArgs {
    /// Number of other processes that keep a processor busy.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=64))]
    busy: u8,
    /// Run the session in a worker process.
    #[arg(long)]
    worker: bool,
    /// Executor of the device: `null`, `soft`, or `cuda-loop`.
    #[arg(long, default_value = "null")]
    executor: String,
    /// Time that a launch takes on the null executor, such as 8ms. The figures then include how late the
    /// program returns after the completion.
    #[arg(long, value_name = "TIME", conflicts_with = "executor")]
    complete_after: Option<String>,
    /// Measure in a booted guest with an emulated processor instead of on the simulated bus.
    #[arg(long)]
    guest: bool,
    /// Duration of the measurement in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Print the figures as JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Processor times of threads in nanoseconds, by the thread's id, with the name of what it belongs to.
type ThreadTimes = BTreeMap<u32, (&'static str, u64)>;

/// Returns the processor times of all threads of a device process and its workers.
fn thread_times(device: u32) -> Result<ThreadTimes> {
    let mut times = ThreadTimes::new();
    let mut processes = vec![(device, "device")];
    while let Some((process, name)) = processes.pop() {
        for task in read_dir(format!("/proc/{process}/task")).context("list threads")? {
            let task = task?;
            let read = |file: &str| read_to_string(task.path().join(file));
            // A thread that ends meanwhile has no files.
            let (Ok(thread), Ok(stat), Ok(children)) = (read("comm"), read("schedstat"), read("children"))
            else {
                continue;
            };
            let time = stat.split_whitespace().next().context("no time")?.parse().context("a time")?;
            let id = task.file_name().to_str().and_then(|id| id.parse().ok()).context("a thread's id")?;
            times.insert(id, (if thread.trim() == GPU_THREAD { "simulated_gpu" } else { name }, time));
            let children = children.split_whitespace().filter_map(|child| child.parse().ok());
            processes.extend(children.map(|child: u32| (child, "worker")));
        }
    }
    Ok(times)
}

/// Returns the time between two readings, by name.
fn between(before: &ThreadTimes, after: &ThreadTimes) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for (id, (name, time)) in after {
        let earlier = before.get(id).map_or(0, |(_, time)| *time);
        *sums.entry(*name).or_default() += time.saturating_sub(earlier);
    }
    sums
}

/// Processes that keep processors busy until the value is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(count: u8) -> Result<Self> {
        let mut load = Self(Vec::new());
        for _ in 0..count {
            // The process ends when the pipe to it closes, however this one ends.
            let child = Command::new(programs::standin()?).arg("busy").stdin(Stdio::piped()).spawn();
            load.0.push(child.context("start a busy process")?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

/// Measures and prints the figures.
pub fn run_wait(arguments: &WaitArgs) -> Result<ExitCode> {
    let answer = figures(arguments)?;
    if arguments.json {
        println!("{answer:#}");
    } else {
        println!("{}", line(&answer));
    }
    Ok(ExitCode::SUCCESS)
}

fn line(answer: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let spread = |of: &Value| format!("p50 {:.2} us, p99 {:.2} us", number(&of["p50"]), number(&of["p99"]));
    let mut parts = vec![format!("a launch with bytes back: {}", spread(&answer["trip_us"]))];
    let machine = &answer["machine"];
    for (of, name) in [
        (&answer["late_us"], "after the completion"),
        (&answer["beyond_us"], "beyond the work"),
        (&machine["polling_ring_us"], "the machine's own threads in a ring, polling"),
        (&machine["sleeping_ring_us"], "asleep"),
        (&machine["late_us"], "late for another thread's timer"),
    ] {
        if of.is_object() {
            parts.push(format!("{name}: {}", spread(of)));
        }
    }
    for (key, name) in [
        ("trip_to_polling_ring", "a trip, of the polling ring"),
        ("trip_to_sleeping_ring", "of the sleeping ring"),
        ("late_to_timer", "after the completion, of a timer's"),
    ] {
        let of = &answer["ratios"][key];
        if of.is_object() {
            parts.push(format!("{name}: {:.1}, p99 {:.1}", number(&of["p50"]), number(&of["p99"])));
        }
    }
    let times = answer["processor_us"].as_object().into_iter().flatten();
    let times: Vec<String> = times.map(|(name, time)| format!("{name} {:.2} us", number(time))).collect();
    parts.push(format!("processor time of each: {}", times.join(", ")));
    parts.join("; ")
}

/// Returns the figures: times in microseconds.
fn figures(arguments: &WaitArgs) -> Result<Value> {
    let seconds = arguments.seconds.to_string();
    let mut stand_in = vec!["wait", "--seconds", &seconds];
    let mut device: Vec<String> = Vec::new();
    let mut option = |name: &str, value: Option<&str>| {
        device.push(name.to_owned());
        device.extend(value.map(str::to_owned));
    };
    if let Some(time) = &arguments.complete_after {
        stand_in.push("--timed");
        option("--complete-after", Some(time));
    }
    if arguments.worker {
        option("--worker", None);
    }
    let executor = &*arguments.executor;
    let (measured, times) = if arguments.guest {
        (in_guest(arguments, executor, device, &stand_in)?, BTreeMap::new())
    } else {
        on_sim(arguments, executor, &device, &stand_in)?
    };
    let trips = measured["trip_ns"]["count"].as_f64().filter(|&count| count > 0.0).context("no trips")?;
    let micro = |value: &Value| value.as_f64().map(|nanoseconds| nanoseconds / 1e3);
    let spread_of =
        |of: &Value| of.is_object().then(|| json!({ "p50": micro(&of["p50"]), "p99": micro(&of["p99"]) }));
    let spread = |key: &str| spread_of(&measured[key]);
    let machine = &measured["machine"];
    let own = machine.is_object().then(|| {
        json!({
            "polling_ring_us": spread_of(&machine["polling_ring_ns"]),
            "sleeping_ring_us": spread_of(&machine["sleeping_ring_ns"]),
            "late_us": spread_of(&machine["late_ns"]),
        })
    });
    let ratio = |of: &str, own: &str| {
        let at = |key: &str| Some(measured[of][key].as_f64()? / machine[own][key].as_f64()?);
        machine[own].is_object().then(|| json!({ "p50": at("p50"), "p99": at("p99") }))
    };
    let mut processor = json!({ "client": micro(&measured["client_ns"]).map(|time| time / trips) });
    for (name, time) in times {
        #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
        let time = time as f64 / 1e3 / trips;
        processor[name] = json!(time);
    }
    Ok(json!({
        "executor": executor,
        "worker": arguments.worker,
        "busy": arguments.busy,
        "guest": arguments.guest,
        "complete_after": arguments.complete_after,
        "trips": measured["trip_ns"]["count"],
        "seconds": micro(&measured["elapsed_ns"]).map(|time| time / 1e6),
        "trip_us": spread("trip_ns"),
        "late_us": spread("late_ns").filter(|_| !arguments.guest),
        "beyond_us": spread("beyond_ns"),
        "machine": own,
        "ratios": {
            "trip_to_polling_ring": ratio("trip_ns", "polling_ring_ns"),
            "trip_to_sleeping_ring": ratio("trip_ns", "sleeping_ring_ns"),
            "late_to_timer": ratio("late_ns", "late_ns"),
        },
        "processor_us": processor,
    }))
}

/// Measures on the simulated bus. Returns the stand-in's answer, and the processor time of the other
/// processes in nanoseconds.
fn on_sim(
    arguments: &WaitArgs,
    executor: &str,
    device: &[String],
    stand_in: &[&str],
) -> Result<(Value, BTreeMap<&'static str, u64>)> {
    let device: Vec<&str> = device.iter().map(String::as_str).collect();
    let bed = Bed::start_with(executor, &[facts(CC)], &device)?;
    let _load = Load::start(arguments.busy)?;
    let mut child = Command::new(programs::launcher()?)
        .arg(programs::standin()?)
        .args(stand_in)
        // The program's thread, the session's, and the worker's.
        .args(["--ring", if arguments.worker { "3" } else { "2" }, "--stay"])
        .env("VGPU_SYSFS", bed.sysfs())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the stand-in")?;
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    let mut next = || -> Result<Value> {
        let line = lines.next().context("the stand-in says no more")??;
        serde_json::from_str(&line).with_context(|| format!("understand {line:?}"))
    };
    let mut measure = || -> Result<(Value, BTreeMap<&'static str, u64>)> {
        let _started = next()?;
        let before = thread_times(bed.pid())?;
        let measured = next()?;
        Ok((measured, between(&before, &thread_times(bed.pid())?)))
    };
    let measured = measure();
    // The stand-in ends once its figures and the times of the others are read.
    drop(child.stdin.take());
    let status = child.wait().context("wait for the stand-in")?;
    if !status.success() {
        bail!("the stand-in: {status}");
    }
    measured
}

/// Measures in a booted guest. Returns the stand-in's answer.
fn in_guest(arguments: &WaitArgs, executor: &str, device: Vec<String>, stand_in: &[&str]) -> Result<Value> {
    let device = [device, vec!["--cc".to_owned(), CC.to_owned()]].concat();
    let options = Options { executor: executor.to_owned(), device, ..Options::default() };
    let mut guest = GuestMachine::boot(&options).context("boot a guest")?;
    let _load = Load::start(arguments.busy)?;
    let command = [&["vgpu-run", "--", "vgpu-standin"], stand_in].concat();
    let (end, out, err) = guest.output("guest", &command, GUEST_LIMIT)?;
    if end.code() != 0 {
        bail!("{command:?} ended with {}: {out}{err}", end.code());
    }
    let line = out.lines().last().context("the stand-in says nothing")?;
    serde_json::from_str(line).with_context(|| format!("understand {line:?}"))
}
