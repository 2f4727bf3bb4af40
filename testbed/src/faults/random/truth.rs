//! Behaviour of the server, which is started in the changed system as its users start it and asked for a
//! token.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::plan::ScenePlan;
use super::super::scene::Scene;
use super::super::scene::process::Process;
use super::super::settings::MODEL;

/// Limit of a server's device discovery: two attempts of half a minute, and its other waits.
const START: Duration = Duration::from_secs(90);
/// Time for the log of a server that answers to arrive.
const LATE: Duration = Duration::from_secs(1);
/// Time between two reads of the server's log.
const TICK: Duration = Duration::from_millis(10);
/// Limit of loading a model and computing a token, generous because the soft executor is slow.
const ANSWER: Duration = Duration::from_mins(3);
/// Text of the log lines in which a server reports found devices, one line each.
const FOUND: &str = "msg=\"inference compute\"";
/// Text before the number of layers, in the log line of the process that loads a model.
const OFFLOADED: &str = "offloaded ";
/// Maximum number of bytes kept of a server's log.
const KEPT: usize = 4 << 20;

/// Observed behaviour of a server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Truth {
    /// Number of CUDA devices that the server found.
    pub devices: usize,
    /// Log lines on found devices, or how the server ended.
    pub said: Vec<String>,
    /// Answer to a request; absent if none was made because the server had ended.
    pub answer: Option<String>,
    /// Bytes on devices after the answer: the model and its compute buffers.
    pub on_device: u64,
    /// Number of the model's layers on a device, if the log reports it.
    pub layers: Option<u32>,
    /// Last lines of the server's log.
    pub log: Vec<String>,
}

impl Truth {
    /// Returns whether the server uses the GPU: it found one, answered, and at least a part of the model was
    /// there. A server that offloads no layer still allocates compute buffers there.
    pub fn uses_gpu(&self) -> bool {
        self.devices > 0 && self.on_device > 0 && self.layers != Some(0)
    }
}

/// Starts the server in the scene, requests a token, and returns what it did.
pub fn observe(scene: &Scene, plan: &ScenePlan) -> Result<Truth> {
    let mut command: Command = scene.command(plan)?;
    command.arg("--").arg(scene.path("path/ollama")).arg("serve");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Process::start(&mut command)?;
    let log = Log::default();
    let (out, err) = server.output();
    for stream in [out.map(boxed), err.map(boxed)].into_iter().flatten() {
        log.follow(stream);
    }
    let end = Instant::now() + START;
    let (mut exit, mut answers) = (None, false);
    // The server listens before it has searched for devices, and answers afterwards.
    while Instant::now() < end && exit.is_none() {
        exit = server.ended()?;
        // A script may send the log elsewhere.
        if scene.request("GET", "/api/version", "", ANSWER).is_ok() {
            answers = true;
            break;
        }
        thread::sleep(TICK);
    }
    // What it has written may still be on its way.
    let late = Instant::now() + LATE;
    while answers && !log.found() && Instant::now() < late {
        thread::sleep(TICK);
    }
    let mut said = log.lines(|line| line.contains(FOUND));
    let mut devices = said.iter().filter(|line| line.to_lowercase().contains("library=cuda")).count();
    let mut answer = None;
    let mut on_device = 0;
    if let Some(status) = exit {
        said.push(format!("ended: {status}"));
    } else if !answers {
        said.push(format!("silent for {} s", START.as_secs()));
    } else {
        let body = json!({
            "model": MODEL, "prompt": "The capital of France is", "stream": false, "raw": true,
            "options": { "num_predict": 1, "temperature": 0, "num_ctx": 512 },
        });
        let answered = scene.request("POST", "/api/generate", &body.to_string(), ANSWER);
        if answered.is_ok() {
            on_device = loaded(scene).unwrap_or_default();
        }
        if said.is_empty() {
            devices = usize::from(on_device > 0);
        }
        answer = Some(answered.map_or_else(|error| format!("{error:#}"), |_| "answered".to_owned()));
    }
    drop(server);
    let layers = log.lines(|line| line.contains(OFFLOADED)).last().and_then(|line| layers(line));
    let mut lines = log.lines(|_| true);
    let log = lines.split_off(lines.len().saturating_sub(60));
    Ok(Truth { devices, said, answer, on_device, layers, log })
}

/// Parses the number of layers in a line such as `offloaded 30/31 layers to GPU`.
fn layers(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once(OFFLOADED)?;
    let (layers, all) = rest.split_once('/')?;
    all.contains(" layers").then(|| layers.parse().ok())?
}

/// Returns the number of bytes that loaded models take on devices.
fn loaded(scene: &Scene) -> Result<u64> {
    let answer = scene.request("GET", "/api/ps", "", ANSWER)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    let body: Value = serde_json::from_str(body).context("/api/ps is no JSON")?;
    let models = body["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(models.iter().filter_map(|model| model["size_vram"].as_u64()).sum())
}

fn boxed(stream: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(stream)
}

/// Lines of a server's output, which are collected while it runs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn follow(&self, stream: Box<dyn Read + Send>) {
        let lines = Arc::clone(&self.0);
        thread::spawn(move || {
            let mut kept = 0;
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            // The output is read to its end even if it is not kept, because a server that cannot write would
            // hang.
            while stream.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                kept += line.len();
                if kept < KEPT {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    lines.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                }
                line.clear();
            }
        });
    }

    fn lines(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| wanted(line)).cloned().collect()
    }

    fn found(&self) -> bool {
        !self.lines(|line| line.contains(FOUND)).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_read_of_the_line_about_them() {
        assert_eq!(layers("load_tensors: offloaded 0/31 layers to GPU"), Some(0));
        assert_eq!(layers("load_tensors: offloaded 31/31 layers to GPU"), Some(31));
        for other in ["offloaded", "offloaded x/31 layers", "offloaded 3/4 tensors"] {
            assert_eq!(layers(other), None, "{other}");
        }
    }
}
