//! Derives medians over tokens from the counts after each token.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;
use vgpu_device::{KernelProfile, Profile, TaskProfile};

use super::name::short;
use crate::bench::measure::median;

/// Counts at the time when a token was decoded.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Seconds that the guest has spent decoding.
    pub decode_s: f64,
    /// Counts of the device.
    pub profile: Profile,
}

/// The launches of one kernel with similar grids and equal blocks, per token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Readable name of the kernel; empty for launches that the device did not count individually.
    pub name: String,
    /// Mangled name of the kernel.
    pub kernel: String,
    /// Upper bound of the grids' blocks. Each grid had more than half as many.
    pub most_blocks: u64,
    /// Number of threads in a block.
    pub threads: u32,
    /// Milliseconds spent in these launches.
    pub ms: f64,
    /// Fraction of the token's total time.
    pub share: f64,
    /// Number of launches in a token.
    pub launches: f64,
    /// Nanoseconds per launch.
    pub ns_per_launch: f64,
    /// Number of blocks in a token's launches.
    pub blocks: f64,
    /// Number of warps in a token's launches.
    pub warps: f64,
    /// Number of launches that the interpreter ran.
    pub interpreted: f64,
    /// Number of steps that machine code handed to the interpreter.
    pub handed_steps: f64,
}

/// Work of one kind besides kernels, per token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Task {
    /// Number of pieces of work.
    pub count: f64,
    /// Milliseconds spent on this work.
    pub ms: f64,
}

/// Time that is not spent in kernels, per token.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outside {
    /// Copies, fills and products, by their kind.
    pub tasks: BTreeMap<String, Task>,
    /// Milliseconds in which the executor processed messages but ran neither kernels nor the tasks.
    pub dispatch_ms: f64,
    /// Milliseconds in which the executor was idle: the guest's own work and the transport in both
    /// directions.
    pub client_ms: f64,
}

/// Launches and the share of the interpreter, per token.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fallbacks {
    /// Number of launches.
    pub launches: f64,
    /// Number of launches that the interpreter ran.
    pub interpreted: f64,
    /// Names of the kernels that the interpreter ran.
    pub kernels: BTreeSet<String>,
    /// Number of steps that machine code handed to the interpreter.
    pub handed_steps: f64,
}

/// Breakdown of a token's time, as medians over tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelReport {
    /// Number of tokens that were measured.
    pub tokens: usize,
    /// Milliseconds of a token.
    pub token_ms: f64,
    /// Milliseconds in all kernels.
    pub kernels_ms: f64,
    /// Launches by kernel and size, the slowest first.
    pub kernels: Vec<Row>,
    /// Time that is not spent in kernels.
    pub outside: Outside,
    /// Work that the interpreter ran.
    pub fallbacks: Fallbacks,
}

/// Result of `bench kernels` with a description of what was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Path of the GGUF file.
    pub model: PathBuf,
    /// Compute capability of the device.
    pub cc: String,
    /// Name of the libggml-cuda.so build.
    pub build: &'static str,
    /// The engine that was requested; null for the device's own choice.
    pub engine: Option<&'static str>,
    /// Name of the host's processor.
    pub processor: String,
    /// Number of processors that this process may use.
    pub processors: usize,
    #[serde(flatten)]
    pub report: KernelReport,
}

/// Kernel, upper bound of the grid's blocks, and threads of a block, by which launches are grouped.
type Key = (String, u64, u32);

/// Differences between two samples, which belong to one token.
struct Token {
    ns: f64,
    kernels: BTreeMap<Key, KernelProfile>,
    tasks: BTreeMap<String, TaskProfile>,
    messages_ns: u64,
}

impl Token {
    fn between(before: &Sample, after: &Sample) -> Self {
        let key = |row: &KernelProfile| (row.kernel.clone(), row.most_blocks, row.threads);
        let old: BTreeMap<Key, &KernelProfile> =
            before.profile.kernels.iter().map(|row| (key(row), row)).collect();
        let since = |row: &KernelProfile| {
            let none = KernelProfile::default();
            let old = old.get(&key(row)).copied().unwrap_or(&none);
            KernelProfile {
                launches: row.launches.saturating_sub(old.launches),
                ns: row.ns.saturating_sub(old.ns),
                blocks: row.blocks.saturating_sub(old.blocks),
                warps: row.warps.saturating_sub(old.warps),
                interpreted: row.interpreted.saturating_sub(old.interpreted),
                handed: row.handed.saturating_sub(old.handed),
                handed_steps: row.handed_steps.saturating_sub(old.handed_steps),
                ..row.clone()
            }
        };
        let task = |(kind, task): (&String, &TaskProfile)| {
            let old = before.profile.tasks.get(kind).copied().unwrap_or_default();
            let since = TaskProfile {
                count: task.count.saturating_sub(old.count),
                ns: task.ns.saturating_sub(old.ns),
            };
            (kind.clone(), since)
        };
        Self {
            ns: (after.decode_s - before.decode_s) * 1e9,
            kernels: after.profile.kernels.iter().map(|row| (key(row), since(row))).collect(),
            tasks: after.profile.tasks.iter().map(task).collect(),
            messages_ns: after.profile.messages_ns.saturating_sub(before.profile.messages_ns),
        }
    }

    fn kernels_ns(&self) -> f64 {
        self.kernels.values().map(|row| number(row.ns)).sum()
    }

    fn tasks_ns(&self) -> f64 {
        self.tasks.values().map(|task| number(task.ns)).sum()
    }
}

/// Converts a count to the type of averages.
#[allow(clippy::cast_precision_loss, reason = "no token has so many nanoseconds")]
const fn number(count: u64) -> f64 {
    count as f64
}

/// Returns the median of a figure over tokens.
fn over<'a>(tokens: &'a [Token], figure: impl Fn(&'a Token) -> f64) -> f64 {
    median(tokens.iter().map(figure).collect())
}

impl KernelReport {
    /// Returns the report over the tokens between `samples`, of which there must be at least two.
    pub fn from_samples(samples: &[Sample]) -> Self {
        let tokens: Vec<Token> = samples.windows(2).map(|pair| Token::between(&pair[0], &pair[1])).collect();
        let token_ns = over(&tokens, |token| token.ns);
        let keys: BTreeSet<&Key> = tokens.iter().flat_map(|token| token.kernels.keys()).collect();
        let mut kernels: Vec<Row> = keys
            .into_iter()
            .map(|key| kernel(&tokens, key, token_ns))
            .filter(|kernel| kernel.launches > 0.0)
            .collect();
        kernels.sort_by_key(|kernel| Reverse((kernel.ms * 1e6) as u64));
        let kinds: BTreeSet<&String> = tokens.iter().flat_map(|token| token.tasks.keys()).collect();
        let task = |kind: &String| {
            let of = |figure: fn(&TaskProfile) -> u64| {
                over(&tokens, |token| number(token.tasks.get(kind).map_or(0, figure)))
            };
            (kind.clone(), Task { count: of(|task| task.count), ms: of(|task| task.ns) / 1e6 })
        };
        let dispatch = |token: &Token| number(token.messages_ns) - token.kernels_ns() - token.tasks_ns();
        let sum = |figure: fn(&KernelProfile) -> u64| {
            over(&tokens, |token| number(token.kernels.values().map(figure).sum()))
        };
        let interpreted = kernels.iter().filter(|kernel| kernel.interpreted > 0.0);
        let fallbacks = Fallbacks {
            launches: sum(|row| row.launches),
            interpreted: sum(|row| row.interpreted),
            kernels: interpreted.map(|kernel| kernel.name.clone()).collect(),
            handed_steps: sum(|row| row.handed_steps),
        };
        let outside = Outside {
            tasks: kinds.into_iter().map(task).filter(|(_, task)| task.count > 0.0).collect(),
            dispatch_ms: over(&tokens, |token| dispatch(token).max(0.0)) / 1e6,
            client_ms: over(&tokens, |token| (token.ns - number(token.messages_ns)).max(0.0)) / 1e6,
        };
        Self {
            tokens: tokens.len(),
            token_ms: token_ns / 1e6,
            kernels_ms: over(&tokens, Token::kernels_ns) / 1e6,
            kernels,
            outside,
            fallbacks,
        }
    }
}

/// Returns the medians of one kernel's launches of one size.
fn kernel(tokens: &[Token], key: &Key, token_ns: f64) -> Row {
    let of = |figure: fn(&KernelProfile) -> u64| {
        over(tokens, |token| number(token.kernels.get(key).map_or(0, figure)))
    };
    let each = tokens.iter().filter_map(|token| token.kernels.get(key)).filter(|row| row.launches > 0);
    let (name, most_blocks, threads) = key;
    let ns = of(|row| row.ns);
    Row {
        name: short(name),
        kernel: name.clone(),
        most_blocks: *most_blocks,
        threads: *threads,
        ms: ns / 1e6,
        share: ns / token_ns,
        launches: of(|row| row.launches),
        ns_per_launch: median(each.map(|row| number(row.ns) / number(row.launches)).collect()),
        blocks: of(|row| row.blocks),
        warps: of(|row| row.warps),
        interpreted: of(|row| row.interpreted),
        handed_steps: of(|row| row.handed_steps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kernel: &str, launches: u64, ns: u64) -> KernelProfile {
        KernelProfile {
            kernel: kernel.to_owned(),
            most_blocks: 8,
            threads: 32,
            launches,
            ns,
            blocks: 5 * launches,
            warps: 5 * launches,
            ..KernelProfile::default()
        }
    }

    fn sample(decode_s: f64, messages_ns: u64, kernels: Vec<KernelProfile>, copies: TaskProfile) -> Sample {
        let tasks = [("copy_in".to_owned(), copies)].into();
        Sample { decode_s, profile: Profile { kernels, tasks, messages_ns } }
    }

    #[test]
    fn medians_are_of_what_each_token_adds() {
        let copies = |count, ns| TaskProfile { count, ns };
        let other = |launches, ns| KernelProfile { interpreted: launches, ..row("other", launches, ns) };
        let report = KernelReport::from_samples(&[
            sample(1.0, 500, vec![row("load", 9, 400)], copies(1, 100)),
            sample(1.001, 1_000_500, vec![row("load", 9, 400), row("k", 2, 600_000)], copies(2, 100_100)),
            sample(
                1.002,
                1_800_500,
                vec![row("load", 9, 400), row("k", 4, 1_000_000), other(1, 50_000)],
                copies(3, 200_100),
            ),
            sample(
                1.003,
                2_600_500,
                vec![row("load", 9, 400), row("k", 6, 1_500_000), other(2, 100_000)],
                copies(4, 300_100),
            ),
        ]);
        assert_eq!(report.tokens, 3);
        assert!((report.token_ms - 1.0).abs() < 1e-6, "{}", report.token_ms);
        let names: Vec<_> = report.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["k", "other"], "what was launched before the tokens is left out");
        let k = &report.kernels[0];
        assert_eq!((k.ms, k.launches, k.ns_per_launch, k.blocks), (0.5, 2.0, 250_000.0, 10.0));
        assert!((k.share - 0.5).abs() < 1e-6);
        assert_eq!(report.outside.tasks["copy_in"], Task { count: 1.0, ms: 0.1 });
        let outside = [report.kernels_ms, report.outside.dispatch_ms, report.outside.client_ms];
        for (found, expected) in outside.into_iter().zip([0.55, 0.25, 0.2]) {
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
        let fallbacks = &report.fallbacks;
        assert_eq!((fallbacks.launches, fallbacks.interpreted), (3.0, 1.0));
        assert_eq!(fallbacks.kernels, BTreeSet::from(["other".to_owned()]));
    }
}
