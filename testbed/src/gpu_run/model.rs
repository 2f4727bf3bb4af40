//! Runs a model once on one of the sides, and measures the times that a user notices.

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};
use vgpu_llama::event::{Event, Job};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::guest::{LogTo, Settings, rate};

use super::limit::{self, Limits};
use super::side::Side;

/// Sentence of 20 tokens that the prompt repeats.
const SENTENCE: &str = "The ship left the harbour at dawn, and nobody on the quay knew where it would go. ";

/// Measured times of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelRun {
    /// Seconds from loading the first library until the model was loaded.
    pub load_s: f64,
    /// Seconds from the start of the process to the first token.
    pub first_token_s: f64,
    /// Rate of the prompt in tokens per second.
    pub prompt_tokens_per_second: f64,
    /// Rate of decoding after the prompt, in tokens per second.
    pub decode_tokens_per_second: f64,
}

/// Parameters of the runs.
#[derive(Clone, Debug)]
pub struct Model {
    /// The build of llama.cpp and its CUDA backend.
    pub backend: Backend,
    /// Path of the GGUF file.
    pub path: PathBuf,
    /// Number of sentences of the prompt.
    pub sentences: usize,
    /// Number of tokens after the prompt.
    pub tokens: usize,
    /// Time limits of a run and of all runs.
    pub limits: Limits,
}

impl Model {
    /// Runs the model and passes each event to `each`.
    pub fn generate(
        &self,
        side: Side<'_>,
        tokens: usize,
        graphs: bool,
        mut each: impl FnMut(&Event),
    ) -> Result<()> {
        let limit = self.limits.left()?;
        let mut settings = Settings::new(self.path.clone(), tokens);
        settings.backend = self.backend;
        settings.past_end = true;
        settings.graphs = graphs;
        settings.log = LogTo::File;
        let job = Job { prompt: SENTENCE.repeat(self.sentences), forced: None };
        let mut guest = settings.start(side.place(), &[job])?;
        limit::watch(guest.pid(), limit)?;
        while let Some(event) = guest.event()? {
            each(&event);
        }
        guest.finish()
    }

    /// Runs the model and returns its times.
    pub fn measure(&self, side: Side<'_>, tokens: usize, graphs: bool) -> Result<ModelRun> {
        let (start, mut run, mut first) = (Instant::now(), ModelRun::default(), None);
        self.generate(side, tokens, graphs, |event| match event {
            Event::Loaded { load_s, .. } => run.load_s = *load_s,
            Event::Prompt { tokens, prompt_s, .. } => {
                run.prompt_tokens_per_second = rate(tokens.len(), *prompt_s);
            }
            Event::Token { .. } => {
                first.get_or_insert_with(|| start.elapsed().as_secs_f64());
            }
            Event::Done { decoded, decode_s, .. } => run.decode_tokens_per_second = rate(*decoded, *decode_s),
            Event::Paused { .. } => {}
        })?;
        run.first_token_s = first.context("no token came")?;
        Ok(run)
    }

    /// Drops the model's file from the page cache, so that the next run reads it from the disk.
    pub fn forget(&self) -> Result<()> {
        let file = File::open(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        fadvise(&file, 0, None, Advice::DontNeed).with_context(|| format!("forget {}", self.path.display()))
    }
}
