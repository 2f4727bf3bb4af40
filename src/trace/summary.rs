//! Writes the summary of a trace, about one page of text.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::calls::{duration, line};
use super::event::{TracedRefusal, What};
use super::loader::Decisions;
use super::reader::{CallEnd, TracedCall, TracedProcess};
use super::status;

/// Number of functions in the list of the most frequent functions.
const TOP: usize = 12;
/// Maximum number of failed calls in the summary, and of refusals.
const FAILED: usize = 8;

/// Returns the summary as text. `ended` describes how the program ended; `loaders` holds the loader's
/// decisions by process id.
pub fn summary(processes: &[TracedProcess], loaders: &BTreeMap<u32, Decisions>, ended: &str) -> String {
    let mut page = String::new();
    // Writing into a text does not fail.
    let _ = write_all(&mut page, processes, loaders, ended);
    page
}

fn write_all(
    page: &mut String,
    processes: &[TracedProcess],
    loaders: &BTreeMap<u32, Decisions>,
    ended: &str,
) -> fmt::Result {
    writeln!(page, "{}", headline(processes, ended))?;
    for process in processes {
        describe(page, process)?;
        if let Some(decisions) = loaders.get(&process.pid) {
            loader(page, decisions)?;
        }
    }
    let silent: Vec<_> =
        loaders.iter().filter(|(pid, _)| !processes.iter().any(|process| process.pid == **pid)).collect();
    if !silent.is_empty() {
        writeln!(page, "\n{} processes made no CUDA call", silent.len())?;
        for (pid, decisions) in silent.iter().filter(|(_, decisions)| mentions_ggml(decisions)) {
            writeln!(page, "process {pid}")?;
            loader(page, decisions)?;
        }
    }
    Ok(())
}

fn mentions_ggml(decisions: &Decisions) -> bool {
    decisions.loaded.iter().any(|path| path.contains("libggml"))
}

/// Returns the first sentence of the summary: the call during which a process ended, or the first failed
/// call.
fn headline(processes: &[TracedProcess], ended: &str) -> String {
    let calls = || processes.iter().flat_map(|process| process.calls.iter().map(move |call| (process, call)));
    let total: u64 = processes.iter().map(|process| process.calls.len() as u64).sum();
    let unfinished =
        calls().filter(|(_, call)| call.end == CallEnd::Unfinished).max_by_key(|(_, call)| call.begin);
    let failed = calls().filter(|(_, call)| call.failed()).min_by_key(|(_, call)| call.begin);
    let what = match (unfinished, failed) {
        (Some((process, call)), _) => {
            let waited = process.in_flight().map_or_else(String::new, |launch| format!("; {launch}"));
            format!("process {} ended inside {}{waited}", process.pid, line(call))
        }
        (None, Some((process, call))) => {
            let why = refused_in(process, call).map_or_else(String::new, |refusal| format!("; {refusal}"));
            format!("the first call that failed, in process {}: {}{why}", process.pid, line(call))
        }
        (None, None) => "no call failed".to_owned(),
    };
    format!("{ended}; {} processes made {total} CUDA calls; {what}", processes.len())
}

/// Returns a refusal by the host that the thread received during the call.
fn refused_in<'a>(process: &'a TracedProcess, call: &TracedCall) -> Option<&'a TracedRefusal> {
    let CallEnd::Returned { at, .. } = call.end else { return None };
    process.events.iter().find_map(|event| match &event.what {
        What::Refusal(refusal) if event.thread == call.thread && (call.begin..=at).contains(&event.begin) => {
            Some(refusal)
        }
        _ => None,
    })
}

fn describe(page: &mut String, process: &TracedProcess) -> fmt::Result {
    writeln!(page, "\nprocess {} (of {}): {}", process.pid, process.parent, process.command)?;
    let counted: u64 = process.counted.values().sum();
    write!(page, "  calls     {}", process.calls.len())?;
    if counted > 0 {
        write!(page, ", and {counted} counted only")?;
    }
    if process.dropped > 0 {
        write!(page, ", and {} for which the file had no room", process.dropped)?;
    }
    writeln!(page)?;
    for (name, count) in &process.counted {
        writeln!(page, "    {count:>8}             {name}")?;
    }
    let mut functions: BTreeMap<(&str, Option<u16>), (u64, u64)> = BTreeMap::new();
    for call in &process.calls {
        let entry = functions.entry((&call.name, call.library)).or_default();
        entry.0 += 1;
        entry.1 = entry.1.saturating_add(call.took().unwrap_or_default());
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    let several = |name: &str| functions.iter().filter(|((other, _), _)| *other == name).count() > 1;
    for ((name, library), (count, time)) in functions.iter().take(TOP) {
        // The libraries of both CUDA major versions export the function.
        let soname = library.filter(|_| several(name)).and_then(status::soname);
        let of = soname.map_or_else(String::new, |soname| format!(" of {soname}"));
        writeln!(page, "    {count:>8} {:>11}  {name}{of}", duration(*time))?;
    }
    if functions.len() > TOP {
        writeln!(page, "             and {} other functions", functions.len() - TOP)?;
    }
    events(page, process)?;
    let failed: Vec<_> = process.calls.iter().filter(|call| call.failed()).collect();
    show(page, "failed", &failed)?;
    let unfinished: Vec<_> = process.calls.iter().filter(|call| call.end == CallEnd::Unfinished).collect();
    show(page, "in flight", &unfinished)?;
    if let Some(launch) = process.in_flight() {
        writeln!(page, "    {launch}")?;
    }
    match process.calls.iter().max_by_key(|call| call.begin) {
        Some(last) => writeln!(page, "  last      {}", line(last)),
        None => Ok(()),
    }
}

fn events(page: &mut String, process: &TracedProcess) -> fmt::Result {
    let mut kinds: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut refusals: Vec<&TracedRefusal> = Vec::new();
    let (mut waits, mut sleeps, mut waited, mut asleep) = (0_u64, 0_u64, 0_u64, 0_u64);
    for event in &process.events {
        match &event.what {
            What::Message { kind, bytes, .. } => {
                let (count, sum) = kinds.entry(kind).or_default();
                *count += 1;
                *sum = sum.saturating_add(*bytes);
            }
            What::Wait { slept, .. } => {
                let took = event.end.saturating_sub(event.begin);
                waits += 1;
                waited = waited.saturating_add(took);
                sleeps += u64::from(*slept);
                asleep = asleep.saturating_add(if *slept { took } else { 0 });
            }
            What::Refusal(refusal) => refusals.push(refusal),
        }
    }
    if process.events.is_empty() {
        return Ok(());
    }
    let messages: u64 = kinds.values().map(|(count, _)| count).sum();
    writeln!(page, "  messages  {messages}")?;
    for (kind, (count, bytes)) in kinds {
        writeln!(page, "    {count:>8} {:>11}  {kind}", format!("{bytes} B"))?;
    }
    writeln!(
        page,
        "  waits     {waits}, {} in all; of these {sleeps} slept, {} in all",
        duration(waited),
        duration(asleep)
    )?;
    if !refusals.is_empty() {
        writeln!(page, "  refused   {}", refusals.len())?;
    }
    refusals.iter().take(FAILED).try_for_each(|refusal| writeln!(page, "    {refusal}"))
}

fn show(page: &mut String, what: &str, calls: &[&TracedCall]) -> fmt::Result {
    if !calls.is_empty() {
        writeln!(page, "  {what:<9} {}", calls.len())?;
    }
    for call in calls.iter().take(FAILED) {
        writeln!(page, "    {}", line(call))?;
    }
    Ok(())
}

fn loader(page: &mut String, decisions: &Decisions) -> fmt::Result {
    for path in &decisions.loaded {
        writeln!(page, "  loaded    {path}")?;
    }
    for (name, tried) in &decisions.searched {
        if !decisions.loaded.iter().any(|path| path.contains(name.as_str())) {
            writeln!(page, "  not found {name}, looked for in {} places", tried.len())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::flight::tests::{kernel, launch, stall};
    use super::super::reader::read;
    use super::super::reader::tests::{call, file, name, refusal};
    use super::*;

    #[test]
    fn the_call_in_flight_is_the_headline() {
        let records = [name(1, 1, "cudaMalloc"), name(2, 0, "cuInit"), call(2, 5, 9, 100), call(1, 10, 0, 0)];
        let process = read(&file(42, &records)).unwrap();
        let page = summary(&[process], &BTreeMap::new(), "the program was killed by signal 9");
        let head = page.lines().next().unwrap();
        assert!(
            head.contains("process 42 ended inside cudaMalloc(") && head.contains("did not return"),
            "{page}"
        );
        assert!(
            page.contains("cuInit(0x0, 0x0, 0x0, 0x0, 0x0, 0x0) = 100 CUDA_ERROR_NO_DEVICE, 4 ns"),
            "{page}"
        );
    }

    /// The summary of a hung program names the launch that the host has not completed.
    #[test]
    fn the_launch_in_flight_is_named() {
        let records = [
            name(1, 0, "cuStreamSynchronize"),
            kernel(4, "quick"),
            kernel(5, "endless"),
            launch(4, 10),
            launch(5, 12),
            launch(4, 13),
            call(1, 10, 0, 0),
            stall(20, 9),
            stall(30, 11),
        ];
        let process = read(&file(42, &records)).unwrap();
        let page = summary(&[process], &BTreeMap::new(), "the program was ended by SIGINT");
        let launch = "the host has not carried out the launch of kernel endless (message 12)";
        assert!(page.lines().next().unwrap().ends_with(launch), "{page}");
        assert_eq!(page.matches(launch).count(), 2, "{page}");
    }

    /// A call that the host refused is shown with the host's explanation.
    #[test]
    fn a_call_that_the_host_refused_is_shown_with_its_words() {
        let mut records = vec![name(1, 0, "cuLaunchKernel"), call(1, 10, 90, 218)];
        // Refusals of another call, of another thread, and of the call itself.
        records.extend(refusal(218, 5, &["earlier"]));
        let mut other = refusal(218, 50, &["another thread's"]);
        for record in &mut other {
            record.thread = 8;
        }
        records.extend(other);
        records.extend(refusal(218, 60, &["kernel wrong: no frobnicate"]));
        let process = read(&file(42, &records)).unwrap();
        let page = summary(&[process], &BTreeMap::new(), "the program ended with 1");
        let words =
            "; the host refused message 65535 with 218 CUDA_ERROR_INVALID_PTX: kernel wrong: no frobnicate";
        assert!(page.lines().next().unwrap().ends_with(words), "{page}");
        assert!(page.contains("\n  refused   3\n"), "{page}");
    }

    #[test]
    fn where_all_is_well_it_says_so() {
        let process = read(&file(42, &[name(2, 0, "cuInit"), call(2, 5, 9, 0)])).unwrap();
        let page = summary(&[process], &BTreeMap::new(), "the program ended with 0");
        assert!(
            page.starts_with("the program ended with 0; 1 processes made 1 CUDA calls; no call failed\n"),
            "{page}"
        );
    }
}
