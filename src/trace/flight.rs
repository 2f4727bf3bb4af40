//! Finds the launch in flight: the kernel that a program was waiting for when it ended.

use std::collections::BTreeMap;

use vgpu_trace_format::{GRAPH, Record, RecordKind};

/// Launches, kernel names and long waits of one process, from which the kernel is found that was in flight at
/// its end.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Flight {
    /// Launches by session and message number.
    launches: BTreeMap<(u64, u64), KernelLaunch>,
    /// Kernel names by session and function number.
    kernels: BTreeMap<(u64, u32), String>,
    /// Latest long wait of each thread, by thread id.
    stalls: BTreeMap<u32, Stall>,
}

/// Launch that a message requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KernelLaunch {
    function: u32,
    thread: u32,
    /// Time at which the launch was sent, in nanoseconds since boot.
    time: u64,
}

/// A wait for the host that has taken long and is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stall {
    session: u64,
    /// Start of the wait, in nanoseconds since boot.
    time: u64,
    /// Number of the last message that the host has completed.
    done: u64,
}

impl Flight {
    /// Adds a record about launches, kernels or waits. Other kinds are ignored.
    pub fn record(&mut self, record: &Record) {
        let argument = record.arguments[0];
        match RecordKind::from_number(record.kind) {
            Some(RecordKind::Launch) => {
                let Record { index: function, thread, begin: time, .. } = *record;
                self.launches.insert((record.result, argument), KernelLaunch { function, thread, time });
            }
            Some(RecordKind::Kernel) => {
                let name = self.kernels.entry((u64::from(record.flags), record.index)).or_default();
                // A number has one name, which is written once.
                name.push_str(&String::from_utf8_lossy(record.text()));
            }
            Some(RecordKind::Stall) => {
                let stall = Stall { session: argument, time: record.begin, done: record.result };
                self.stalls.insert(record.thread, stall);
            }
            _ => {}
        }
    }

    /// Describes the latest launch that is not known to be complete. `within` returns whether a thread was in
    /// an unfinished call at a given time.
    pub fn launch(&self, within: impl Fn(u32, u64) -> bool) -> Option<String> {
        let open = self.stalls.iter().filter(|(thread, stall)| within(**thread, stall.time));
        let Some((_, stall)) = open.max_by_key(|(_, stall)| stall.time) else {
            // A device of version 1 carries a launch out before the call that sends it goes on.
            let sent = self.launches.iter().filter(|(_, launch)| within(launch.thread, launch.time));
            let ((session, number), launch) = sent.max_by_key(|(_, launch)| launch.time)?;
            let what = self.launched(*session, launch.function);
            return Some(format!("that call sent the launch of {what} (message {number})"));
        };
        let (first, last) = ((stall.session, 0), (stall.session, u64::MAX));
        let after = (stall.session, stall.done.saturating_add(1));
        if let Some(((_, number), launch)) = self.launches.range(after..=last).next() {
            let what = self.launched(stall.session, launch.function);
            return Some(format!("the host has not carried out the launch of {what} (message {number})"));
        }
        // Executors of GPUs pass a launch on and count it as carried out.
        let ((_, number), launch) = self.launches.range(first..=last).next_back()?;
        let what = self.launched(stall.session, launch.function);
        Some(format!(
            "the host has passed on all launches, the last of them of {what} (message {number}), and does not \
             say which is not complete"
        ))
    }

    /// Describes a launched kernel by its name, or by its function number if the name is unknown.
    fn launched(&self, session: u64, function: u32) -> String {
        if function == GRAPH {
            return "a graph".to_owned();
        }
        let name = self.kernels.get(&(session, function));
        name.map_or_else(|| format!("function {function}"), |name| format!("kernel {name}"))
    }
}

#[cfg(test)]
pub mod tests {
    use vgpu_trace_format::{TEXT_AT, TEXT_MOST};
    use zerocopy::IntoBytes;

    use super::*;

    /// Creates a record of a kernel's name.
    pub fn kernel(function: u32, name: &str) -> Record {
        let mut record = Record { kind: RecordKind::Kernel as u32, index: function, ..Record::default() };
        record.as_mut_bytes()[TEXT_AT..TEXT_AT + name.len()].copy_from_slice(name.as_bytes());
        record
    }

    /// Builds a record of a launch of `function` by message `number`.
    pub fn launch(function: u32, number: u64) -> Record {
        let arguments = [number, 0, 0, 0, 0, 0];
        let kind = RecordKind::Launch as u32;
        Record { kind, index: function, thread: 7, begin: number, arguments, ..Record::default() }
    }

    /// Builds a record of a wait of thread 7 that has not ended; `done` is the last completed message.
    pub fn stall(time: u64, done: u64) -> Record {
        Record { kind: RecordKind::Stall as u32, thread: 7, begin: time, result: done, ..Record::default() }
    }

    fn flight(records: &[Record]) -> Flight {
        let mut flight = Flight::default();
        for record in records {
            flight.record(record);
        }
        flight
    }

    #[test]
    fn the_first_launch_that_was_not_carried_out_is_in_flight() {
        let long = "x".repeat(TEXT_MOST);
        let records = [kernel(1, &long), kernel(1, "y"), launch(1, 5), launch(GRAPH, 6), stall(10, 4)];
        let said = flight(&records).launch(|_, _| true).unwrap();
        assert!(said.ends_with(&format!("the launch of kernel {long}y (message 5)")), "{said}");
        let graph = flight(&[launch(1, 5), launch(GRAPH, 6), stall(10, 5)]).launch(|_, _| true).unwrap();
        assert!(graph.ends_with("the launch of a graph (message 6)"), "{graph}");
    }

    #[test]
    fn where_the_host_does_not_say_which_the_last_launch_is_named() {
        let said = flight(&[kernel(1, "k"), launch(1, 5), stall(10, 9)]).launch(|_, _| true).unwrap();
        assert!(said.contains("passed on all launches") && said.contains("kernel k (message 5)"), "{said}");
    }

    #[test]
    fn a_wait_that_is_over_names_nothing() {
        let flight = flight(&[launch(1, 5), stall(10, 4)]);
        assert_eq!(flight.launch(|thread, _| thread != 7), None);
    }

    #[test]
    fn a_launch_that_the_call_itself_sent_is_named() {
        let flight = flight(&[kernel(1, "k"), launch(1, 5), launch(2, 6)]);
        let said = flight.launch(|_, time| time == 5).unwrap();
        assert!(said.ends_with("sent the launch of kernel k (message 5)"), "{said}");
    }
}
