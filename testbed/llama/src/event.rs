//! What `vgpu-llama` prints and what it is given: JSON, read by the test bed.

use serde::{Deserialize, Serialize};

/// One prompt to work on.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The prompt's text.
    pub prompt: String,
    /// Tokens to go along, instead of the model's own choice. Their number is that of the positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced: Option<Vec<i32>>,
}

/// A device of GGML.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Device {
    /// GGML's name, such as `CUDA0`.
    pub name: String,
    /// The product's name.
    pub description: String,
    /// Whether it is a GPU.
    pub gpu: bool,
}

/// A line of the program's output.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A model is loaded. All models are, and each has a context.
    Loaded {
        /// llama.cpp's version, as it says.
        version: String,
        /// GGML's devices, in its order.
        devices: Vec<Device>,
        /// Layers on GPUs, and layers that there are (the output layer is one), as llama.cpp logs them.
        /// Nothing where no backend is a GPU's.
        offloaded: Option<(u32, u32)>,
        /// Number of tokens in the vocabulary.
        vocab: usize,
        /// Seconds from the loading of the first library until there was a context.
        load_s: f64,
    },
    /// A prompt is decoded.
    Prompt {
        /// Number of the job, from 0.
        job: usize,
        /// The prompt's tokens.
        tokens: Vec<i32>,
        /// Seconds until its logits were there.
        prompt_s: f64,
    },
    /// A position's distribution is known.
    Token {
        /// Number of the job, from 0.
        job: usize,
        /// Which position behind the prompt, from 0.
        index: usize,
        /// The likeliest token.
        top: i32,
        /// The token that is decoded next: the same, or the one that was given.
        token: i32,
        /// What it adds to the text. A character that takes several tokens comes with the last of them.
        piece: String,
    },
    /// The program waits for a line on stdin. All its work is done.
    Paused {
        /// Tokens decoded behind the prompt.
        decoded: usize,
        /// Seconds that took, pauses not counted.
        #[serde(default)]
        decode_s: f64,
    },
    /// A job is done.
    Done {
        /// Number of the job, from 0.
        job: usize,
        /// The tokens of all positions.
        tokens: Vec<i32>,
        /// The text of these tokens.
        text: String,
        /// Tokens decoded behind the prompt: the last one is not.
        decoded: usize,
        /// Seconds that took, pauses not counted.
        decode_s: f64,
    },
}
