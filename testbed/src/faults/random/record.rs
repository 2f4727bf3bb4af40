//! Randomly changed systems, and their records: a run that is interrupted goes on in the directory with the
//! records of the systems that it has tried.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::Family;
use super::truth::Truth;

/// A randomly changed system, with the server's behaviour and the check's verdict.
#[derive(Debug, Deserialize, Serialize)]
pub struct RandomSystem {
    /// Number within the run, which reproduces the case together with the seed (`--case`).
    pub number: u64,
    /// Families of the changes.
    pub families: Vec<Family>,
    /// Descriptions of the changes.
    pub made: String,
    /// Behaviour of the server; absent if the system could not be built.
    pub truth: Option<Truth>,
    /// Verdict of the check.
    pub verdict: String,
    /// Headline of the check: `LINK/CAUSE`, or the verdict.
    pub headline: String,
    /// Final sentence of the check, and the links that did not pass.
    pub words: Value,
    /// The check's whole report.
    #[serde(skip)]
    pub report: Value,
    /// Duration of the case in seconds.
    pub seconds: f64,
    /// Agreement of the verdict with what the server did.
    pub outcome: Outcome,
}

/// How a verdict compares with what the server did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The check's verdict agrees with the server's behaviour.
    Right,
    /// The check reports "works", but the server does not use the GPU.
    WorksAndDoesNot,
    /// The check reports "broken", but the server uses the GPU.
    BrokenAndWorks,
    /// The check reports that it could not decide.
    Undecided,
    /// The system could not be built.
    NotMade,
}

/// What the systems of a run depend on. Another run draws others, or checks them by another program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RecordedRun {
    pub seed: u64,
    /// Commit of the sources, with the changes that are not committed.
    pub commit: String,
    /// Program of the real Ollama, if there is one, with its size.
    pub ollama: Option<(PathBuf, u64)>,
}

impl RecordedRun {
    /// Returns the run with this seed and the real Ollama whose program is at `ollama`, if there is one.
    pub fn new(seed: u64, ollama: Option<&Path>) -> Result<Self> {
        let measured = |program: &Path| -> io::Result<(PathBuf, u64)> {
            let program = program.canonicalize()?;
            let bytes = fs::metadata(&program)?.len();
            Ok((program, bytes))
        };
        let ollama = ollama.map(measured).transpose().context("look at Ollama's program")?;
        let mut git = Command::new("git");
        git.args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]);
        let output = git.current_dir(env!("CARGO_MANIFEST_DIR")).output().context("start git")?;
        if !output.status.success() {
            bail!("git names no commit: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Self { seed, commit: String::from_utf8_lossy(&output.stdout).trim().to_owned(), ollama })
    }
}

fn recorded(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.json"))
}

/// Reads a system that was tried before. One that could not be made counts as one that was not tried. Fails
/// if it is of another run.
pub fn read_record(folder: &Path, run: &RecordedRun, number: u64) -> Result<Option<RandomSystem>> {
    let path = recorded(folder, number);
    let read = || format!("read {}", path.display());
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(read),
    };
    let record: Value = serde_json::from_slice(&text).with_context(read)?;
    let of = RecordedRun::deserialize(&record["run"]).with_context(read)?;
    if of != *run {
        bail!("{} is of another run, {of:?}: this one is {run:?}", path.display());
    }
    let case = RandomSystem::deserialize(&record["case"]).with_context(read)?;
    Ok(Some(case).filter(|case| case.outcome != Outcome::NotMade))
}

/// Writes the record of a system. A run that is interrupted leaves no half of one.
pub fn write_record(folder: &Path, run: &RecordedRun, case: &RandomSystem) -> Result<()> {
    let path = recorded(folder, case.number);
    let part = path.with_extension("part");
    let text = json!({ "run": run, "case": case, "report": case.report }).to_string();
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, &path))
        .with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(outcome: Outcome) -> RandomSystem {
        RandomSystem {
            number: 7,
            families: vec![Family::Files],
            made: "x".into(),
            truth: None,
            verdict: "broken".into(),
            headline: "truth/found-cpu".into(),
            words: Value::Null,
            report: json!({ "verdict": "broken" }),
            seconds: 1.0,
            outcome,
        }
    }

    #[test]
    fn a_recorded_system_keeps_its_report() {
        let folder = tempfile::tempdir().unwrap();
        let run = RecordedRun { seed: 5, commit: "a".into(), ollama: None };
        write_record(folder.path(), &run, &case(Outcome::Right)).unwrap();
        let text = fs::read(recorded(folder.path(), 7)).unwrap();
        let record: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!((&record["report"]["verdict"], &record["case"]["number"]), (&json!("broken"), &json!(7)));
        assert!(record["case"]["report"].is_null(), "once");
        let read = read_record(folder.path(), &run, 7).unwrap().unwrap();
        assert_eq!((read.outcome, read.headline.as_str()), (Outcome::Right, "truth/found-cpu"));
        assert!(read_record(folder.path(), &run, 8).unwrap().is_none(), "not tried");
        write_record(folder.path(), &run, &case(Outcome::NotMade)).unwrap();
        assert!(read_record(folder.path(), &run, 7).unwrap().is_none(), "it is tried again");
    }

    #[test]
    fn a_record_of_another_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let run = RecordedRun { seed: 5, commit: "a".into(), ollama: None };
        write_record(folder.path(), &run, &case(Outcome::Right)).unwrap();
        for other in [
            RecordedRun { seed: 6, ..run.clone() },
            RecordedRun { commit: "b".into(), ..run.clone() },
            RecordedRun { ollama: Some(("/usr/bin/ollama".into(), 1)), ..run.clone() },
        ] {
            let error = read_record(folder.path(), &other, 7).unwrap_err().to_string();
            assert!(error.contains("7.json is of another run"), "{error}");
        }
    }

    #[test]
    fn a_run_names_the_program_of_its_ollama() {
        let run = RecordedRun::new(1, Some(Path::new("/proc/self/exe"))).unwrap();
        assert!(run.commit.len() >= 40 && run.ollama.unwrap().1 > 0, "{}", run.commit);
        assert!(RecordedRun::new(1, Some(Path::new("/nonexistent"))).is_err());
    }
}
