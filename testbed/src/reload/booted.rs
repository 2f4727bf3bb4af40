//! Booted VMs: stock llama.cpp streams the tokens in each guest, beside programs with random operations and
//! one that reads a register of the device.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use vgpu_llama::event::{Event, Job};
use vgpu_testbed::announce;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::guest::model;
use vgpu_testbed::machine::{GuestMachine, Options};
use vgpu_testbed::unit::Instance;
use vgpu_wire::registers as reg;

use super::figures::{Outcome, gaps, length, longest_during};
use super::options::ReloadArgs;
use super::reloader::{Reloads, reload};
use super::site::TrialHost;

/// The model, which is the smallest that the tests have, and what it continues.
const MODEL: &str = "smollm2";
const PROMPT: &str = "The capital of France is";
/// Limit of a stream in an emulated guest, beside that for each token.
const LIMIT: Duration = Duration::from_mins(5);
const TOKEN_LIMIT: Duration = Duration::from_secs(10);

/// What a guest runs: as user of the device, a program that reads a register, `$3` programs with random
/// operations, and the stream. Its standard output has the stream's lines, and then a line of each of the
/// others.
const SCRIPT: &str = r#"cd $(mktemp -d) && mkfifo go && echo "$1" > jobs && offset=$2 others=$3 longest=$4 && shift 4
function=$(dirname $(grep -l 0x2331 /sys/bus/pci/devices/*/device))
vgpu-standin access $function/resource0 --offset $offset --longest $longest <go >accesses &
exec 3>go
for number in $(seq $others); do
    (rounds=0
    until [ -e over ]; do
        vgpu-run -- vgpu-standin soak --seed $number$rounds --operations 20 >said 2>&1 3>&- || { cat said; break; }
        rounds=$((rounds+1))
    done >errors$number
    echo $rounds >rounds$number) &
done
vgpu-run -- "$@" --jobs jobs 3>&-
code=$?
touch over
exec 3>&-
wait
cat accesses
[ $others = 0 ] || cat rounds* errors*
exit $code"#;

/// Boots the guests, and streams in all of them at a time, without and then with reloads.
pub(super) fn run(arguments: &ReloadArgs, site: &TrialHost) -> Result<Vec<Outcome>> {
    let stream = Command::new(arguments)?;
    thread::scope(|scope| {
        let stream = &stream;
        let vms: Vec<_> = (site.devices.iter())
            .map(|device| scope.spawn(move || play(arguments, device, stream)))
            .collect();
        vms.into_iter().map(|vm| vm.join().map_err(|_| anyhow!("a VM's thread panicked"))?).collect()
    })
}

/// The program that streams.
struct Command {
    shares: Vec<std::path::PathBuf>,
    words: Vec<String>,
}

impl Command {
    fn new(arguments: &ReloadArgs) -> Result<Self> {
        let (backend, model) = (Backend::Cuda12.folder()?, model(MODEL)?);
        let text =
            |path: &std::path::Path| path.to_str().map(str::to_owned).context("a path that is no text");
        let words = ["sh", "-c", SCRIPT, "sh"].map(str::to_owned);
        let mut words = Vec::from(words);
        words.push(serde_json::to_string(&[Job { prompt: PROMPT.to_owned(), forced: None }])?);
        words.push(reg::V2_GENERATION.to_string());
        words.push(arguments.sessions.saturating_sub(1).to_string());
        words.push(arguments.reloads.to_string());
        words.extend(["vgpu-llama", "--gpu-backend"].map(str::to_owned));
        words.push(text(&backend.join("libggml-cuda.so"))?);
        words.extend(["--libraries".to_owned(), text(&backend)?, "--model".to_owned(), text(&model)?]);
        words.extend(["--tokens".to_owned(), arguments.tokens.to_string()]);
        words.extend(["--past-end", "--log", "warn"].map(str::to_owned));
        let folder = model.parent().context("a model without a folder")?.to_owned();
        Ok(Self { shares: vec![backend, folder], words })
    }
}

/// What a guest has said.
#[derive(Default)]
struct Said {
    tokens: Vec<i32>,
    moments: Vec<Instant>,
    accesses: Vec<f64>,
    values: usize,
    rounds: u64,
    errors: Vec<String>,
}

fn play(arguments: &ReloadArgs, device: &Instance, stream: &Command) -> Result<Outcome> {
    let options = Options { shares: stream.shares.clone(), ..Options::default() };
    let mut vm = device.qemu_arguments()?;
    // As firmware needs it to place the windows of ports.
    vm.extend(["-cpu", "max,vendor=GenuineIntel"].map(str::to_owned));
    let mut guest = GuestMachine::boot_on(&options, &vm)?;
    announce("reload: a guest has booted");
    let (without, _) = listen(arguments, &mut guest, stream, device, false)?;
    announce("reload: a guest streams, and its device is reloaded");
    let (with, reloads) = listen(arguments, &mut guest, stream, device, true)?;
    let Reloads { intervals, pauses, streaming } = reloads;
    let pairs = without.tokens.iter().zip(&with.tokens).filter(|(one, other)| one != other);
    let missing = arguments.tokens - with.tokens.len().min(without.tokens.len());
    let different = pairs.count() + missing;
    let mut errors = [without.errors, with.errors].concat();
    if (without.values, with.values) != (1, 1) {
        errors.push("the generation of the device has changed, or an access failed".to_owned());
    }
    let gaps_with = gaps(&with.moments);
    Ok(Outcome {
        different,
        reloads: intervals.len(),
        streaming,
        rounds: BTreeMap::from([("random operations", with.rounds)]),
        errors,
        pauses,
        accesses: with.accesses,
        gaps: longest_during(&gaps_with, &intervals),
        waits: Vec::new(),
        accesses_without: without.accesses,
        gaps_without: gaps(&without.moments).iter().map(length).collect(),
    })
}

/// Has a guest stream, and reloads its device meanwhile if `reloads`.
fn listen(
    arguments: &ReloadArgs,
    guest: &mut GuestMachine,
    stream: &Command,
    device: &Instance,
    reloads: bool,
) -> Result<(Said, Reloads)> {
    let words: Vec<&str> = stream.words.iter().map(String::as_str).collect();
    let tokens = u32::try_from(arguments.tokens).context("a number of tokens")?;
    let limit = LIMIT + TOKEN_LIMIT * tokens * arguments.sessions;
    let (told, heard) = mpsc::channel();
    thread::scope(|scope| {
        let reloading = scope
            .spawn(move || if reloads { reload(device, arguments, &heard) } else { Ok(Reloads::default()) });
        let mut said = Said::default();
        let end = guest.follow("guest", &words, limit, |line, _| {
            if said.hear(line) {
                // Nobody hears it where there are no reloads.
                let _ = told.send(());
            }
            Ok(())
        });
        drop(told);
        let reloads = reloading.join().map_err(|_| anyhow!("a thread panicked"))?;
        let end = end?;
        if end.code() != 0 {
            bail!("the stream ended with {}: {:?}\n{}", end.code(), said.errors, guest.console());
        }
        Ok((said, reloads?))
    })
}

impl Said {
    /// Takes a line. Returns whether it is a token.
    fn hear(&mut self, line: &str) -> bool {
        let value: Option<Value> = serde_json::from_str(line).ok();
        let event = value.as_ref().and_then(|value| serde_json::from_value(value.clone()).ok());
        match (event, value) {
            (Some(Event::Token { .. }), _) => {
                self.moments.push(Instant::now());
                return true;
            }
            (Some(Event::Done { tokens, .. }), _) => self.tokens = tokens,
            (Some(_), _) => {}
            (None, Some(Value::Number(rounds))) => self.rounds += rounds.as_u64().unwrap_or_default(),
            (None, Some(accesses)) if accesses["longest_ns"].is_array() => {
                self.values = accesses["values"].as_array().map_or(0, Vec::len);
                let times = accesses["longest_ns"].as_array().into_iter().flatten();
                self.accesses = times.filter_map(|time| Some(time.as_f64()? / 1e6)).collect();
            }
            _ => self.errors.push(line.to_owned()),
        }
        false
    }
}
