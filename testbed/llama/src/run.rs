//! Runs jobs: each prompt is decoded greedily or along given tokens, one token at a time.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::distribution;
use crate::event::{Event, Job};
use crate::ffi::{Context, LlamaError, Model};
use crate::logits::{LogitsError, Writer};
use crate::text::Text;

/// Reasons why the jobs cannot be finished.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum RunError {
    #[error(transparent)]
    Llama(#[from] LlamaError),
    #[error(transparent)]
    Logits(#[from] LogitsError),
    #[error("find the likeliest token: all {0} logits of the position are not numbers")]
    NoNumbers(usize),
    #[error("decode an empty prompt")]
    Empty,
    #[error("write the logits of {0} models to one file")]
    LogitsOfSeveral(usize),
    #[error("write to stdout")]
    Output(#[source] std::io::Error),
    #[error("wait for a line on stdin")]
    Input(#[source] std::io::Error),
    #[error("write JSON")]
    Json(#[from] serde_json::Error),
}

/// Settings that all jobs share.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of positions after a prompt, if the job does not force its tokens.
    pub tokens: usize,
    /// Whether to continue after a token that ends the text.
    pub past_end: bool,
    /// Whether prompts are questions for the model's chat template.
    pub chat: bool,
    /// Number of tokens after a prompt from which on the program waits for a line on stdin before each
    /// further token.
    pub pause_from: Option<usize>,
    /// File that receives the raw logits.
    pub logits: Option<PathBuf>,
}

/// Prints an event as a line of JSON on stdout.
pub fn print_event(event: &Event) -> Result<(), RunError> {
    let mut line = serde_json::to_string(event)?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(RunError::Output)
}

/// Returns the tokens of a job's prompt.
pub fn tokens_of(model: &Model, job: &Job, chat: bool) -> Result<Vec<i32>, RunError> {
    let tokens = if chat {
        model.tokenize(&model.chat(&job.prompt)?, true)?
    } else {
        model.tokenize(&job.prompt, false)?
    };
    if tokens.is_empty() { Err(RunError::Empty) } else { Ok(tokens) }
}

/// Runs all jobs, each with one model after the other in the model's context. With several models each of
/// these runs counts as a job of its own in the output.
pub fn jobs(contexts: &mut [(&Model, Context<'_>)], jobs: &[Job], options: &Options) -> Result<(), RunError> {
    let mut logits = match (&options.logits, &*contexts) {
        (Some(path), [(model, _)]) => Some(Writer::create(path, model.vocab())?),
        (Some(_), several) => return Err(RunError::LogitsOfSeveral(several.len())),
        (None, _) => None,
    };
    let mut index = 0;
    for job in jobs {
        for (model, context) in &mut *contexts {
            context.clear();
            one(model, context, index, job, options, logits.as_mut())?;
            index += 1;
        }
    }
    if let Some(logits) = logits {
        logits.finish()?;
    }
    Ok(())
}

fn one(
    model: &Model,
    context: &mut Context<'_>,
    index: usize,
    job: &Job,
    options: &Options,
    mut logits: Option<&mut Writer>,
) -> Result<(), RunError> {
    let prompt = tokens_of(model, job, options.chat)?;
    let begin = Instant::now();
    context.decode(&prompt)?;
    // Logits are available when this call returns.
    context.logits()?;
    print_event(&Event::Prompt { job: index, tokens: prompt, prompt_s: begin.elapsed().as_secs_f64() })?;

    pause(options, 0, Duration::ZERO)?;
    let positions = job.forced.as_ref().map_or(options.tokens, Vec::len);
    let (mut tokens, mut text, mut whole) = (Vec::new(), Text::default(), String::new());
    let (mut spent, mut decoded) = (Duration::ZERO, 0);
    for position in 0..positions {
        let row = context.logits()?;
        if let Some(file) = logits.as_deref_mut() {
            file.row(row)?;
        }
        let top = distribution::top(row).ok_or(RunError::NoNumbers(row.len()))?;
        let top = i32::try_from(top).unwrap_or(i32::MAX);
        let token = job.forced.as_ref().map_or(top, |forced| forced[position]);
        tokens.push(token);
        let piece = text.push(&model.piece(token));
        whole.push_str(&piece);
        print_event(&Event::Token { job: index, index: position, top, token, piece })?;
        let ends = job.forced.is_none() && !options.past_end && model.is_end(token);
        if ends || position + 1 == positions {
            break;
        }
        let begin = Instant::now();
        context.decode(&[token])?;
        context.logits()?;
        spent += begin.elapsed();
        decoded += 1;
        pause(options, decoded, spent)?;
    }
    whole.push_str(&text.finish());
    print_event(&Event::Done { job: index, tokens, text: whole, decoded, decode_s: spent.as_secs_f64() })
}

/// Waits for a line on stdin if a pause is due, so that the test bed can examine the idle device.
fn pause(options: &Options, decoded: usize, spent: Duration) -> Result<(), RunError> {
    if options.pause_from.is_none_or(|from| decoded < from) {
        return Ok(());
    }
    print_event(&Event::Paused { decoded, decode_s: spent.as_secs_f64() })?;
    // The end of stdin resumes the program too, since nobody is left to wait for.
    std::io::stdin().lock().read_line(&mut String::new()).map_err(RunError::Input)?;
    Ok(())
}
