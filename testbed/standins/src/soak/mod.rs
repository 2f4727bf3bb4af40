//! A CUDA program that performs random operations from a seed and compares all data with the expected
//! content: allocations, copies of all sizes in all directions, fills, kernels, streams, events, and modules.

pub mod cuda;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::json;

use cuda::Cuda;

use crate::driver::Handle;
use crate::mix::{self, Mix};

/// Maximum number of buffers. The constants below limit the bytes of one buffer and of all.
const BUFFERS: usize = 12;
const LARGEST: usize = 9 << 20;
const ALL_BYTES: usize = 40 << 20;
/// Number of streams besides the default one.
const STREAMS: usize = 4;
/// Maximum number of words that a kernel processes.
const WORDS: usize = 20_000;
/// Number of operations after which the program prints that it is working.
const BEGUN: u64 = 25;

/// A buffer in device memory, with its expected content.
struct Buffer {
    address: u64,
    bytes: Vec<u8>,
}

/// Counts of the performed operations.
#[derive(Default)]
struct Counts {
    kinds: BTreeMap<&'static str, u64>,
    bytes_in: u64,
    bytes_out: u64,
    wrong: u64,
}

struct Soak {
    cuda: Cuda,
    rng: StdRng,
    buffers: Vec<Buffer>,
    streams: Vec<Handle>,
    module: Handle,
    function: Handle,
    /// Stream that received the latest work.
    last: Option<Handle>,
    counts: Counts,
}

/// Runs until so many operations are done, or so many seconds over; prints `working` early on, and in the end
/// what was done, as JSON. Fails if a byte was wrong, or a call.
pub fn soak_device(seed: u64, operations: Option<u64>, seconds: Option<u64>) -> Result<ExitCode> {
    let cuda = Cuda::begin()?;
    let (module, function) = cuda.load(mix::PTX, mix::NAME)?;
    let mut soak = Soak {
        cuda,
        rng: StdRng::seed_from_u64(seed),
        buffers: Vec::new(),
        streams: vec![std::ptr::null_mut()],
        module,
        function,
        last: None,
        counts: Counts::default(),
    };
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut done = 0;
    while operations.is_none_or(|operations| done < operations) && end.is_none_or(|end| Instant::now() < end)
    {
        soak.operate()?;
        done += 1;
        if done == BEGUN {
            say("working")?;
        }
    }
    while let Some(buffer) = soak.buffers.pop() {
        soak.compare(&buffer, 0, buffer.bytes.len(), None)?;
        soak.cuda.free(buffer.address)?;
    }
    soak.cuda.unload(soak.module)?;
    let Counts { kinds, bytes_in, bytes_out, wrong } = soak.counts;
    let report = json!({ "operations": done, "kinds": kinds, "bytes_in": bytes_in, "bytes_out": bytes_out, "wrong": wrong });
    say(&report.to_string())?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

impl Soak {
    /// Returns a random size up to `most`. Small sizes are as likely as large ones.
    fn size(&mut self, most: usize) -> usize {
        let bits = self.rng.random_range(0..=most.ilog2());
        self.rng.random_range(1..=(2_usize << bits) - 1).min(most)
    }

    /// Returns a random part of a buffer: index, offset, and number of bytes. Returns `None` if there is no
    /// buffer.
    fn part(&mut self) -> Option<(usize, usize, usize)> {
        let index = self.rng.random_range(0..self.buffers.len().max(1));
        let length = self.buffers.get(index)?.bytes.len();
        let bytes = self.size(length);
        Some((index, self.rng.random_range(0..=length - bytes), bytes))
    }

    /// Returns a random stream that is ordered after all earlier work. Half of the time returns `None`, after
    /// waiting for the earlier work.
    fn stream(&mut self) -> Result<Option<Handle>> {
        let index = self.rng.random_range(0..2 * self.streams.len());
        let stream = self.streams.get(index).copied();
        if let Some(before) = self.last.take().filter(|before| stream != Some(*before)) {
            let ask_first = self.rng.random();
            self.cuda.order(before, stream, ask_first)?;
        }
        self.last = stream;
        Ok(stream)
    }

    /// Returns a random stream or the default one, ordered after all earlier work, for calls that require a
    /// stream.
    fn some_stream(&mut self) -> Result<Handle> {
        let stream = self.stream()?.unwrap_or(std::ptr::null_mut());
        self.last = Some(stream);
        Ok(stream)
    }

    fn count(&mut self, kind: &'static str) {
        *self.counts.kinds.entry(kind).or_default() += 1;
    }

    fn operate(&mut self) -> Result<()> {
        let kind = self.rng.random_range(0..100);
        let in_all: usize = self.buffers.iter().map(|buffer| buffer.bytes.len()).sum();
        if self.buffers.is_empty() || kind < 8 && self.buffers.len() < BUFFERS && in_all < ALL_BYTES {
            return self.allocate();
        }
        let Some((index, at, bytes)) = self.part() else { return Ok(()) };
        match kind {
            0..12 => self.free(index),
            12..38 => self.upload(index, at, bytes),
            38..64 => {
                self.count("download");
                let stream = self.stream()?;
                let buffer = self.buffers.swap_remove(index);
                let compared = self.compare(&buffer, at, bytes, stream);
                self.buffers.push(buffer);
                compared
            }
            64..74 => self.fill(index, at, bytes),
            74..82 => self.copy(index, at, bytes),
            82..94 => self.mix(index, at, bytes),
            94..98 => self.change_streams(),
            _ => {
                self.count("module");
                self.wait()?;
                self.cuda.unload(self.module)?;
                (self.module, self.function) = self.cuda.load(mix::PTX, mix::NAME)?;
                Ok(())
            }
        }
    }

    /// Waits for the latest work, which is ordered after all earlier work.
    fn wait(&mut self) -> Result<()> {
        self.last.take().map_or(Ok(()), |stream| self.cuda.synchronize(stream))
    }

    fn allocate(&mut self) -> Result<()> {
        self.count("allocate");
        // Rather a large one.
        let bytes = self.size(LARGEST).max(self.size(LARGEST));
        let value = self.rng.random();
        let address = self.cuda.alloc(bytes)?;
        let stream = self.some_stream()?;
        self.cuda.set8(address, value, bytes, stream)?;
        self.buffers.push(Buffer { address, bytes: vec![value; bytes] });
        Ok(())
    }

    fn free(&mut self, index: usize) -> Result<()> {
        self.count("free");
        let buffer = self.buffers.swap_remove(index);
        self.wait()?;
        self.cuda.free(buffer.address)
    }

    fn upload(&mut self, index: usize, at: usize, bytes: usize) -> Result<()> {
        self.count("upload");
        let stream = self.stream()?;
        let Buffer { address, bytes: all } = &mut self.buffers[index];
        let part = &mut all[at..at + bytes];
        // Zeros look like nothing to some devices.
        match self.rng.random_range(0..4) {
            0 => part.fill(0),
            _ => self.rng.fill_bytes(part),
        }
        self.counts.bytes_in += bytes as u64;
        self.cuda.to_device(*address + at as u64, part, stream)
    }

    /// Compares a part of a buffer in device memory with its expected content.
    fn compare(&mut self, buffer: &Buffer, at: usize, bytes: usize, stream: Option<Handle>) -> Result<()> {
        if stream.is_none() {
            self.wait()?;
        }
        // The buffer is filled with inverted bytes, so that stale content is detected.
        let mut there: Vec<u8> = buffer.bytes[at..at + bytes].iter().map(|byte| !byte).collect();
        self.cuda.to_host(&mut there, buffer.address + at as u64, stream)?;
        self.counts.bytes_out += bytes as u64;
        let pairs = there.iter().zip(&buffer.bytes[at..]);
        self.counts.wrong += pairs.filter(|(there, wanted)| there != wanted).count() as u64;
        Ok(())
    }

    fn fill(&mut self, index: usize, at: usize, bytes: usize) -> Result<()> {
        self.count("fill");
        let stream = self.some_stream()?;
        let value: u32 = self.rng.random();
        let Buffer { address, bytes: all } = &mut self.buffers[index];
        if at.is_multiple_of(4) && bytes >= 4 {
            let words = bytes / 4;
            all[at..at + 4 * words].copy_from_slice(&value.to_le_bytes().repeat(words));
            return self.cuda.set32(*address + at as u64, value, words, stream);
        }
        all[at..at + bytes].fill(value as u8);
        self.cuda.set8(*address + at as u64, value as u8, bytes, stream)
    }

    /// Copies a part of a buffer to another buffer.
    fn copy(&mut self, index: usize, at: usize, bytes: usize) -> Result<()> {
        let Some((to, start, room)) = self.part().filter(|(to, ..)| *to != index) else { return Ok(()) };
        self.count("copy");
        let stream = self.some_stream()?;
        let bytes = bytes.min(room);
        let moved = self.buffers[index].bytes[at..at + bytes].to_vec();
        let from = self.buffers[index].address + at as u64;
        let Buffer { address, bytes: all } = &mut self.buffers[to];
        all[start..start + bytes].copy_from_slice(&moved);
        self.cuda.within(*address + start as u64, from, bytes, stream)
    }

    /// Runs a kernel on whole words of a buffer.
    fn mix(&mut self, index: usize, at: usize, bytes: usize) -> Result<()> {
        let at = at & !3;
        let words = (bytes / 4).min(WORDS);
        if words == 0 {
            return Ok(());
        }
        self.count("launch");
        let stream = self.some_stream()?;
        let (a, b) = (self.rng.random::<u32>() | 1, self.rng.random());
        let Buffer { address, bytes: all } = &mut self.buffers[index];
        let work = Mix { words: words as u32, a, b, steps: 1 };
        let mixed = work.whole();
        for word in all[at..at + 4 * words].chunks_exact_mut(4) {
            let old = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            word.copy_from_slice(&mixed(old).to_le_bytes());
        }
        let threads = [32, 64, 96, 256][self.rng.random_range(0..4)];
        let shape = [work.words.div_ceil(threads), threads];
        self.cuda.launch(self.function, shape, *address + at as u64, work, stream)
    }

    fn change_streams(&mut self) -> Result<()> {
        self.count("stream");
        if self.streams.len() <= STREAMS {
            self.streams.push(self.cuda.stream()?);
            return Ok(());
        }
        // The first is the default one.
        let index = self.rng.random_range(1..self.streams.len());
        let stream = self.streams.swap_remove(index);
        if self.last == Some(stream) {
            self.wait()?;
        }
        self.cuda.end_stream(stream)
    }
}
