//! Input and output of `vgpu-llama`: JSON, which the test bed writes and reads.

use serde::{Deserialize, Serialize};

/// A prompt to decode, as a line of the jobs file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Text of the prompt.
    pub prompt: String,
    /// Tokens to decode instead of the model's own choice. Their number determines that of the positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced: Option<Vec<i32>>,
}

/// A device that GGML has found.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Device {
    /// GGML's name of the device, such as `CUDA0`.
    pub name: String,
    /// Product name of the device.
    pub description: String,
    /// Whether the device is a GPU.
    pub gpu: bool,
}

/// An event, printed as one line of JSON on stdout.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// All models are loaded and each has a context.
    Loaded {
        /// Version string of llama.cpp.
        version: String,
        /// Devices in GGML's order.
        devices: Vec<Device>,
        /// Number of layers on GPUs and of all layers (the output layer is one), as llama.cpp logs them.
        /// Absent if no backend uses a GPU.
        offloaded: Option<(u32, u32)>,
        /// Number of tokens in the vocabulary.
        vocab: usize,
        /// Seconds from loading the first library until the contexts existed.
        load_s: f64,
    },
    /// A prompt has been decoded.
    Prompt {
        /// Number of the job, counted from 0.
        job: usize,
        /// Tokens of the prompt.
        tokens: Vec<i32>,
        /// Seconds until the prompt's logits were available.
        prompt_s: f64,
    },
    /// The distribution of a position is known.
    Token {
        /// Number of the job, counted from 0.
        job: usize,
        /// Position after the prompt, counted from 0.
        index: usize,
        /// Most likely token of the position.
        top: i32,
        /// Token that is decoded next: the most likely one, or the one that the job forces.
        token: i32,
        /// Text that the token adds. A character that takes several tokens appears with the last of them.
        piece: String,
    },
    /// The program has finished all submitted work and waits for a line on stdin.
    Paused {
        /// Number of tokens decoded after the prompt so far.
        decoded: usize,
        /// Seconds spent on decoding after the prompt, without pauses.
        #[serde(default)]
        decode_s: f64,
    },
    /// A job is completed.
    Done {
        /// Number of the job, counted from 0.
        job: usize,
        /// Tokens of all positions.
        tokens: Vec<i32>,
        /// Text of all positions' tokens.
        text: String,
        /// Number of tokens decoded after the prompt. The last token of the text is not decoded.
        decoded: usize,
        /// Seconds spent on decoding after the prompt, without pauses.
        decode_s: f64,
    },
}
