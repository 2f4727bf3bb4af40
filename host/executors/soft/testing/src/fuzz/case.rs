//! Runs a program's text on the engines, compares what they leave in memory and how they fail, and compares
//! arithmetic with its reference.
//!
//! The text is all that a case consists of. Its first line describes the launch. A line
//! `// witness OFFSET SPELLING OPERANDS BYTES` says that the next instructions store the operands of an
//! instruction and its result, each in 8 bytes, at an offset of the thread's part of `trace`, after a 1 in the
//! first 8 bytes. `OPERANDS` is the number of operands, and `BYTES` the size of the result.

use std::fmt;

use vgpu_simt::{Fault, Features};

use crate::device::{Device, Params, Shape};
use crate::fuzz::reference::{allows, reference};
use crate::values::{Domain, Random};

/// Size of the table that programs read. It does not end at a page's end.
pub const TABLE: u64 = 4096 + 8 * 31;
/// Size of the memory whose words all threads change by atomic operations.
pub const SUMS: u64 = 512;
/// Limit of instructions of a launch. Programs end by construction, far below it.
const BUDGET: u64 = 1 << 28;
/// Number of launches of a program, each with its own data. Translation takes longer than a launch.
const LAUNCHES: u64 = 4;

/// What one engine has left.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The fault that ended the launch.
    pub fault: Option<Fault>,
    /// All memories with their names, the variables of the module included, or nothing where a fault stopped
    /// other warps at an arbitrary instruction.
    memory: Vec<(String, Vec<u8>)>,
}

/// Description of a launch, from the first line of a program.
#[derive(Clone, Debug)]
struct Launch {
    block: [u32; 3],
    grid: [u32; 3],
    dynamic: u32,
    seed: u64,
    own: u64,
    out: u64,
    trace: u64,
}

impl Launch {
    fn parse(text: &str) -> Result<Self, String> {
        let line = text.lines().next().unwrap_or_default();
        let field = |name: &str| {
            let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.ok_or_else(|| format!("the first line has no {name}"))
        };
        let number = |name: &str| {
            field(name)?.parse::<u64>().map_err(|error| format!("{name} of the first line: {error}"))
        };
        let shape = |name: &str| {
            let axes: Vec<u32> = field(name)?.split(',').filter_map(|axis| axis.parse().ok()).collect();
            <[u32; 3]>::try_from(axes).map_err(|_| format!("{name} of the first line is not X,Y,Z"))
        };
        Ok(Self {
            block: shape("block")?,
            grid: shape("grid")?,
            dynamic: number("dynamic")? as u32,
            seed: number("seed")?,
            own: number("own")?,
            out: number("out")?,
            trace: number("trace")?,
        })
    }

    fn threads(&self) -> u64 {
        self.block.iter().chain(&self.grid).map(|&axis| u64::from(axis)).product()
    }
}

/// Returns random words, of which many are edges of a type.
fn data(random: &mut Random, bytes: u64) -> Vec<u8> {
    const DOMAINS: [Domain; 7] = [
        Domain::F32,
        Domain::F16x2,
        Domain::Bf16x2,
        Domain::Int(32),
        Domain::Count,
        Domain::F64,
        Domain::Int(64),
    ];
    let edges = DOMAINS.map(Domain::edges);
    let mut all = Vec::with_capacity(bytes as usize + 8);
    while all.len() < bytes as usize {
        let domain = random.below(DOMAINS.len() as u64 + 3) as usize % DOMAINS.len();
        let value = DOMAINS[domain].random(random, &edges[domain]).to_le_bytes();
        all.extend_from_slice(if domain < 5 { &value[..4] } else { &value });
    }
    all.truncate(bytes as usize);
    all
}

/// A program on one engine, with the memory of its launches.
struct Loaded {
    device: Device,
    /// Names, addresses and sizes of the memories that are parameters.
    memories: Vec<(&'static str, u64, u64)>,
}

impl Loaded {
    fn new(text: &str, launch: &Launch, features: Features) -> Result<Self, String> {
        let mut device = Device::new(text, features)?;
        let threads = launch.threads();
        let sizes = [
            ("table", TABLE),
            ("own", threads * launch.own),
            ("out", threads * launch.out),
            ("trace", threads * launch.trace),
            ("sums", SUMS),
        ];
        let memories = sizes.map(|(name, bytes)| (name, device.allocate(bytes.max(8)), bytes.max(8)));
        Ok(Self { device, memories: memories.to_vec() })
    }

    /// Launches the kernel with the data of a seed.
    fn run(&self, launch: &Launch, seed: u64) -> Result<Outcome, String> {
        let mut random = Random::new(seed);
        let mut params = Params::new();
        for &(name, address, bytes) in &self.memories {
            // From zeros, some reductions of the sums would leave zeros whatever they are given.
            let random = matches!(name, "table" | "own" | "sums");
            let content =
                if random { data(&mut Random::new(seed ^ bytes), bytes) } else { vec![0; bytes as usize] };
            self.device.write(address, &content);
            params = params.u64(address);
        }
        params = params.align(16);
        for chunk in data(&mut random, 64).chunks_exact(8) {
            params = params.u64(u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
        }
        let shape = Shape {
            dynamic_shared: launch.dynamic,
            stack: 4096,
            budget: BUDGET,
            ..Shape::new(launch.grid, launch.block)
        };
        let fault = self.device.try_launch("k", shape, &params)?.err();
        if let Some(Fault::Timeout { .. } | Fault::OutOfMemory { .. } | Fault::BadLaunch(_)) = fault {
            return Err(format!("the launch failed: {fault:?}"));
        }
        // Other warps than the one that failed are anywhere then.
        let defined = fault.is_none() || (launch.threads() <= 32 && launch.grid == [1; 3]);
        let mut memory = Vec::new();
        if defined {
            let read = |name: &str, at: u64, bytes: u64| (name.to_owned(), self.device.read(at, bytes));
            memory.extend(self.memories.iter().map(|&(name, at, bytes)| read(name, at, bytes)));
            memory.extend(self.device.globals().map(|(name, at, bytes)| read(name, at, bytes)));
        }
        Ok(Outcome { fault, memory })
    }
}

/// Returns what distinguishes two outcomes. The thread that fails first is left out where there are several
/// warps: where lanes part depends on the fuel with which a warp starts, which is what the block before it
/// has left, and the pool's threads share out the blocks.
fn difference(got: &Outcome, wanted: &Outcome) -> Option<String> {
    let code = |outcome: &Outcome| outcome.fault.map(|fault| fault.code());
    let alike = got.memory.is_empty() && wanted.memory.is_empty() && code(got) == code(wanted);
    if got.fault != wanted.fault && !alike {
        return Some(format!("fault {:?}, should be {:?}", got.fault, wanted.fault));
    }
    got.memory.iter().zip(&wanted.memory).find_map(|((name, got), (_, wanted))| {
        let at = got.iter().zip(wanted).position(|(got, wanted)| got != wanted)? & !7;
        let (got, wanted) = (&got[at..(at + 8).min(got.len())], &wanted[at..(at + 8).min(wanted.len())]);
        Some(format!("{name}+{at}: {got:02x?}, should be {wanted:02x?}"))
    })
}

/// Compares the recorded operands and results of instructions with their reference.
fn check_witnesses(text: &str, launch: &Launch, outcome: &Outcome) -> Result<u64, Wrong> {
    let Some((_, trace)) = outcome.memory.iter().find(|(name, _)| name == "trace") else { return Ok(0) };
    if outcome.fault.is_some() || launch.trace == 0 {
        return Ok(0);
    }
    let mut checked = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("// witness ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unreadable = || Wrong { kind: WrongKind::Text, message: format!("unreadable witness {line}") };
        let [offset, spelling, sources, bytes] = words[..] else { return Err(unreadable()) };
        let number = |word: &str| word.parse::<usize>().map_err(|_| unreadable());
        let (offset, count, bytes) = (number(offset)?, number(sources)?, number(bytes)? as u32);
        for (thread, part) in trace.chunks_exact(launch.trace as usize).enumerate() {
            let read = |at: usize| {
                let from = offset + 8 * at;
                u64::from_le_bytes(part[from..from + 8].try_into().unwrap_or_default())
            };
            if read(0) != 1 {
                continue;
            }
            let operands: Vec<u64> = (1..=count).map(read).collect();
            let got = read(count + 1);
            if let Some(expect) = reference(spelling, &operands) {
                checked += 1;
                if !allows(&expect, got, bytes) {
                    let of = format!("{spelling} of {operands:#x?}");
                    let message =
                        format!("reference: thread {thread}: {of} is {got:#x}, should be {expect:x?}");
                    return Err(Wrong { kind: WrongKind::Reference, message });
                }
            }
        }
    }
    Ok(checked)
}

/// How a program ended on all engines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verdict {
    /// Whether the program ended with a fault.
    pub fault: bool,
    /// Number of results that were compared with a reference.
    pub references: u64,
}

/// Kind of a failure. A reduced program fails in the same way as the program that was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongKind {
    /// The text describes no launch, or has a witness that cannot be read.
    Text,
    /// This engine does not accept the program.
    Build(Features),
    /// This engine cannot launch the program, or the launch exceeds its limits.
    Launch(Features),
    /// The fault on this engine differs from that on the first engine.
    Fault(Features),
    /// The memory that this engine leaves differs from that of the first engine.
    Memory(Features),
    /// An instruction's result is not the reference's.
    Reference,
}

/// What is wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Kind of the failure.
    pub kind: WrongKind,
    /// What was found, with the engine or the instruction.
    pub message: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Runs a program on each of the engines, a few times with different data, in turns of the usual length and
/// in short ones. Fails if their outcomes differ or an instruction's result is not the reference's.
pub fn check(text: &str, engines: &[Features]) -> Result<Verdict, Wrong> {
    let launch = Launch::parse(text).map_err(|message| Wrong { kind: WrongKind::Text, message })?;
    let on = |kind: WrongKind, features: Features, error: &str| Wrong {
        kind,
        message: format!("{features:?}: {error}"),
    };
    let mut loaded = Vec::with_capacity(engines.len());
    for &features in engines {
        let one = Loaded::new(text, &launch, features);
        loaded.push(one.map_err(|error| on(WrongKind::Build(features), features, &error))?);
    }
    let mut verdict = Verdict::default();
    for (seed, short) in (launch.seed..launch.seed + LAUNCHES).flat_map(|seed| [(seed, false), (seed, true)])
    {
        let mut first: Option<Outcome> = None;
        for (&features, loaded) in engines.iter().zip(&mut loaded) {
            loaded.device.shorten_turns(short);
            let outcome = loaded.run(&launch, seed);
            let outcome = outcome.map_err(|error| on(WrongKind::Launch(features), features, &error))?;
            match &first {
                None => first = Some(outcome),
                Some(wanted) => {
                    if let Some(difference) = difference(&outcome, wanted) {
                        let same_fault = outcome.fault == wanted.fault;
                        let kind =
                            if same_fault { WrongKind::Memory(features) } else { WrongKind::Fault(features) };
                        let message = format!("{features:?} and {:?} differ: {difference}", engines[0]);
                        return Err(Wrong { kind, message });
                    }
                }
            }
        }
        let Some(outcome) = first else {
            return Err(Wrong { kind: WrongKind::Text, message: "no engine".into() });
        };
        verdict.references += check_witnesses(text, &launch, &outcome)?;
        verdict.fault |= outcome.fault.is_some();
    }
    Ok(verdict)
}
