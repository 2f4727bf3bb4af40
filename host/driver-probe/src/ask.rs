//! The parent of the questions' processes, and the report.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::process::Command;
use vgpu_abi::nvml::module_version;
use vgpu_findings::child::{self, ChildOutcome};

use crate::driver::{Driver, since};
use crate::questions::Question;

/// Text before a system call that a confined process was refused, on its standard error.
const REFUSED: &str = "refused system call ";

/// Whom to ask what.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The driver's library, by path or by the name under which the loader finds it.
    pub libcuda: PathBuf,
    /// Program that answers a question as a child, with the arguments that make it do so. The question
    /// follows as JSON.
    pub program: Vec<PathBuf>,
    /// Questions, in the order in which they are asked.
    pub questions: Vec<Question>,
    /// Whether each question is also asked in a process that is confined as a worker is.
    pub confined: bool,
    /// Whether a confined process may connect to UNIX sockets, as a driver that is not NVIDIA's may need.
    pub connects: bool,
    /// Time for all questions, or `None` for as long as they take. A question that has no time left is not
    /// asked.
    pub limit: Option<Duration>,
}

/// Argument of a child.
#[derive(Debug, Serialize, Deserialize)]
struct ChildArgument {
    libcuda: PathBuf,
    question: Question,
    confined: bool,
    connects: bool,
}

/// Answers of one driver.
#[derive(Clone, Debug)]
pub struct Report {
    /// The answers as one object, in the format of the files in `testbed/bench/drivers`. Answers of confined
    /// processes are in the object `confined`.
    pub json: Value,
    /// Whether each process ended by itself, with the driver's answer or the call that the driver refused.
    pub complete: bool,
}

/// Last line of a child's output.
#[derive(Debug, Serialize, Deserialize)]
struct ChildAnswer {
    /// The driver's answer, or the reason for which there is none.
    answer: Result<Value, String>,
    /// Time that `cuInit` and `cuCtxCreate` took, and time from the start of the process to the answer.
    init_ms: f64,
    context_ms: f64,
    answered_ms: f64,
}

/// Asks all questions, one after the other, because they measure.
///
/// # Errors
/// Fails if a process cannot be started.
pub async fn ask(probe: &Probe) -> Result<Report, std::io::Error> {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let libcuda = probe.libcuda.display().to_string();
    let mut all = json!({ "kernel": kernel, "driver": module_version(Path::new("/")), "libcuda": libcuda });
    let start = Instant::now();
    let (mut complete, mut unanswered, mut refused) = (true, Vec::new(), BTreeSet::new());
    for &question in &probe.questions {
        for confined in [false, true].into_iter().take(1 + usize::from(probe.confined)) {
            let left = probe.limit.map(|limit| limit.saturating_sub(start.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                complete = false;
                let reason = "not asked: no time was left";
                unanswered.push(json!({ "question": question, "confined": confined, "reason": reason }));
                continue;
            }
            let asking = ask_one(probe, question, confined);
            let outcome = match left {
                Some(left) => tokio::time::timeout(left, asking).await,
                None => Ok(asking.await),
            };
            let Ok(outcome) = outcome else {
                complete = false;
                let reason = "no answer before the time for all questions was over";
                unanswered.push(json!({ "question": question, "confined": confined, "reason": reason }));
                continue;
            };
            let outcome = outcome?;
            let answers = if confined { &mut all["confined"] } else { &mut all };
            let answer = outcome.stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
            complete &= answer.is_some();
            let lines = outcome.stderr.lines().filter_map(|line| line.split_once(REFUSED));
            refused.extend(lines.map(|(_, call)| call.to_owned()));
            let answer = answer.map_or_else(
                || Err(trouble(&outcome)),
                |child: ChildAnswer| {
                    widen(&mut answers["cuInit_ms"], child.init_ms);
                    widen(&mut answers["cuCtxCreate_ms"], child.context_ms);
                    if question == Question::EndWithMemory {
                        let ended_ms = outcome.elapsed.as_secs_f64() * 1e3;
                        answers["process_end_ms"] = json!(ended_ms - child.answered_ms);
                    }
                    child.answer
                },
            );
            match answer {
                Ok(answer) => merge(answers, answer),
                Err(reason) => {
                    let row = json!({ "question": question, "confined": confined, "reason": reason });
                    unanswered.push(row);
                }
            }
        }
    }
    if probe.confined {
        all["confined"]["refused_calls"] = json!(refused);
    }
    all["unanswered"] = unanswered.into();
    Ok(Report { json: all, complete })
}

/// Describes the end of a process that printed no answer.
fn trouble(outcome: &ChildOutcome) -> String {
    let end = outcome.trouble().unwrap_or_else(|| "printed no answer".to_owned());
    outcome.stderr.lines().last().map_or(end.clone(), |words| format!("{end}: {words}"))
}

/// Makes a list of the least and the most milliseconds include a figure.
fn widen(list: &mut Value, ms: f64) {
    let ends = [&list[0], &list[1]].map(|end| end.as_f64().unwrap_or(ms));
    *list = json!([ends[0].min(ms), ends[1].max(ms)]);
}

/// Adds an answer to a report. Objects under one key become one.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (into, Value::Object(from)) if into.is_object() || into.is_null() => {
            from.into_iter().for_each(|(key, value)| merge(&mut into[key], value));
        }
        (into, from) => *into = from,
    }
}

/// Asks one question in a process that is killed at the question's limit, or when the future is dropped.
async fn ask_one(probe: &Probe, question: Question, confined: bool) -> Result<ChildOutcome, std::io::Error> {
    let [file, words @ ..] = &probe.program[..] else {
        return Err(std::io::Error::other("no program is named that answers"));
    };
    let (libcuda, connects) = (probe.libcuda.clone(), probe.connects);
    let argument = ChildArgument { libcuda, question, confined, connects };
    let mut command = Command::new(file);
    command.args(words).arg(serde_json::to_string(&argument)?);
    child::run_bounded(command, question.limit()).await
}

/// Answers one question in the process that was started for it, and prints the answer as one line of JSON.
/// `confine` gives up rights as a worker does. Its argument says whether the process may still connect to
/// UNIX sockets.
pub fn answer(argument: &str, confine: impl FnOnce(bool) -> Result<(), String>) -> ExitCode {
    let start = Instant::now();
    let Ok(argument) = serde_json::from_str::<ChildArgument>(argument) else { return ExitCode::from(2) };
    let confined = if argument.confined { confine(argument.connects) } else { Ok(()) };
    let opened = confined.and_then(|()| Driver::open(&argument.libcuda).map_err(|error| error.to_string()));
    let driver = match opened {
        Ok(driver) => driver,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let (init_ms, context_ms) = (driver.init_ms, driver.context_ms);
    let answer = argument.question.answer(driver).map_err(|error| error.to_string());
    let answer = ChildAnswer { answer, init_ms, context_ms, answered_ms: since(start) };
    // A parent that is gone reads no answer.
    let _ = serde_json::to_writer(std::io::stdout(), &answer);
    let _ = writeln!(std::io::stdout());
    // Threads may still wait in the driver, which must not keep the process.
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_one_object() {
        let mut all = json!({ "held": { "calls": { "a": "blocks" } } });
        merge(&mut all, json!({ "held": { "calls": { "b": "returns" }, "depth": 7 } }));
        merge(&mut all["confined"], json!({ "gpu": "x" }));
        let both = json!({ "a": "blocks", "b": "returns" });
        assert_eq!(all, json!({ "held": { "calls": both, "depth": 7 }, "confined": { "gpu": "x" } }));
    }

    #[test]
    fn the_least_and_the_most_of_a_figure_are_kept() {
        let mut list = Value::Null;
        for ms in [2.0, 1.0, 3.0] {
            widen(&mut list, ms);
        }
        assert_eq!(list, json!([1.0, 3.0]));
    }
}
