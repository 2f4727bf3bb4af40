//! Waits for a server's answer as long as its processes are working. On a busy machine, a few seconds without
//! an answer mean nothing, unless the processes are idle meanwhile.

use std::path::Path;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::ollama::processes::{OllamaServer, Running};

/// Interval between polls for the answer, which grows from the first value to the second.
const TICKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Share of a processor, in thousandths, below which processes that use or wait for it count as idle.
const IDLE: u32 = 10;

/// Reason why an answer did not arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The server's processes were idle meanwhile.
    Idle,
    /// The server's processes were working, or their activity is unknown.
    Working,
}

/// Waits for the result of `ask`, which must return by itself after `limit`. Gives up after `limit`, or after
/// `quiet` if the server's processes are idle.
pub async fn wait<T: Send + 'static>(
    server: &OllamaServer,
    quiet: Duration,
    limit: Duration,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Silence> {
    let (tell, heard) = channel();
    let start = Instant::now();
    // It ends with the process at the latest.
    std::thread::spawn(move || {
        // The reader may have given up.
        let _ = tell.send(ask());
    });
    let mut since = (start, work(server));
    let mut tick = TICKS.0;
    loop {
        match heard.try_recv() {
            Ok(answer) if start.elapsed() < limit => return Ok(answer),
            Err(TryRecvError::Empty) if start.elapsed() < limit => {}
            // An error that arrives at the end is only that of the time limit.
            _ => return Err(if idle(server, since) { Silence::Idle } else { Silence::Working }),
        }
        if since.0.elapsed() >= quiet {
            if idle(server, since) {
                return Err(Silence::Idle);
            }
            since = (Instant::now(), work(server));
        }
        tokio::time::sleep(tick).await;
        tick = (tick * 2).min(TICKS.1);
    }
}

/// Returns whether the server's processes have been idle since a time. The pair holds the time and the work
/// done by then.
fn idle(server: &OllamaServer, (since, before): (Instant, Option<Duration>)) -> bool {
    match (before, work(server)) {
        (Some(before), Some(now)) => now.saturating_sub(before) < since.elapsed() * IDLE / 1000,
        _ => false,
    }
}

/// Returns the time that a server's processes, including later ones, have used processors or waited for one.
/// Returns `None` if the kernel does not report it.
fn work(server: &OllamaServer) -> Option<Duration> {
    let proc = Path::new("/proc");
    let tree = Running::scan(proc).tree(server.process.pid);
    tree.iter().filter_map(|process| of_process(proc, process.pid)).reduce(|one, other| one + other)
}

/// Returns the processor time and waiting time of all threads of a process.
fn of_process(proc: &Path, pid: u32) -> Option<Duration> {
    let tasks = std::fs::read_dir(proc.join(pid.to_string()).join("task")).ok()?;
    let read = |task: std::io::Result<std::fs::DirEntry>| {
        times(&std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?)
    };
    tasks.filter_map(read).reduce(|one, other| one + other)
}

/// Returns the sum of the first two numbers of a `schedstat`: nanoseconds on a processor, and nanoseconds of
/// waiting for one.
fn times(schedstat: &str) -> Option<Duration> {
    let mut numbers = schedstat.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok().map(Duration::from_nanos);
    next()?.checked_add(next()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ollama::processes::process;

    fn waited(
        ask: impl FnOnce() -> u8 + Send + 'static,
        of: &OllamaServer,
        quiet: u64,
        limit: u64,
    ) -> Result<u8, Silence> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (quiet, limit) = (Duration::from_millis(quiet), Duration::from_millis(limit));
        runtime.block_on(wait(of, quiet, limit, ask))
    }

    fn server(pid: u32) -> OllamaServer {
        // For a moment a program that begins has no command line.
        let process = loop {
            if let Some(process) = process(Path::new("/proc"), pid) {
                break process;
            }
            std::thread::yield_now();
        };
        OllamaServer { process, runners: Vec::new(), listens: None }
    }

    #[test]
    fn an_answer_is_an_answer() {
        assert_eq!(waited(|| 7, &server(std::process::id()), 60_000, 60_000), Ok(7));
    }

    #[test]
    fn a_server_that_does_nothing_is_not_waited_for() {
        let mut sleeps = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let one = server(sleeps.id());
        let known = work(&one).is_some();
        let (end, ends) = channel::<()>();
        let ask = move || u8::from(ends.recv().is_ok());
        let found = waited(ask, &one, 200, if known { 600_000 } else { 300 });
        drop(end);
        sleeps.kill().unwrap();
        sleeps.wait().unwrap();
        assert_eq!(found, Err(if known { Silence::Idle } else { Silence::Working }));
    }

    #[test]
    fn a_server_that_works_is_waited_for_until_the_end() {
        let mut works = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let one = server(works.id());
        let (end, ends) = channel::<()>();
        let found = waited(move || u8::from(ends.recv().is_ok()), &one, 2000, 7000);
        drop(end);
        works.kill().unwrap();
        works.wait().unwrap();
        assert_eq!(found, Err(Silence::Working));
    }

    #[test]
    fn what_a_schedstat_says() {
        assert_eq!(times("1000 500 3\n"), Some(Duration::from_nanos(1500)));
        assert_eq!((times("7"), times("a b"), times("")), (None, None, None));
        assert!(of_process(Path::new("/proc"), std::process::id()).is_none_or(|time| time > Duration::ZERO));
    }

    proptest! {
        #[test]
        fn no_schedstat_breaks_the_reader(text in "[ 0-9a-z]{0,50}") {
            let _ = times(&text);
        }
    }
}
