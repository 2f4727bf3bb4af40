//! A model on one of the sides, run once, with the times that a user feels.

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

/// What the prompt says again and again: 20 tokens.
const SENTENCE: &str = "The ship left the harbour at dawn, and nobody on the quay knew where it would go. ";

/// One run.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelRun {
    /// Seconds from the loading of the first library until the model was there.
    pub load_s: f64,
    /// Seconds from the start of the process to the first token.
    pub first_token_s: f64,
    /// Tokens of the prompt a second.
    pub prompt_tokens_per_second: f64,
    /// Tokens decoded a second, behind the prompt.
    pub decode_tokens_per_second: f64,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Model {
    /// The build of llama.cpp and its CUDA backend.
    pub backend: Backend,
    /// A GGUF file.
    pub path: PathBuf,
    /// Sentences of the prompt.
    pub sentences: usize,
    /// Tokens behind the prompt.
    pub tokens: usize,
    /// How long a run, and all of them, may take.
    pub limits: Limits,
}

impl Model {
    /// Runs it and shows `each` event.
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

    /// Runs it for its times.
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

    /// Has the kernel forget the model's file, so that the next run reads it from the disk.
    pub fn forget(&self) -> Result<()> {
        let file = File::open(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        fadvise(&file, 0, None, Advice::DontNeed).with_context(|| format!("forget {}", self.path.display()))
    }
}
