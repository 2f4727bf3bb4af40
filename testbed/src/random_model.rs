//! A language model of SmolLM2's shape whose weights and vocabulary are drawn by a seed. What it says means
//! nothing, but it costs a GPU what SmolLM2-135M costs, and it need not be carried anywhere: the same seed
//! makes the same file on every machine.
//!
//! GGUF, version 3: a header, `key type value` for what the model is, name and shape of each tensor, and then
//! the tensors, each at a multiple of 32 bytes. Source: `gguf.md` of GGML.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Alignment of tensors in the file, in bytes.
const ALIGNMENT: usize = 32;
/// Number of tokens in the vocabulary.
const VOCABULARY: usize = 49_152;
/// Length of a token's embedding.
const WIDTH: usize = 576;
/// Length of the vectors inside a feed-forward network.
const HIDDEN: usize = 1536;
/// Length of a layer's keys and of its values: 3 heads of 64.
const KEYS: usize = 192;
/// Number of transformer layers.
const LAYERS: usize = 30;

/// GGUF's number of the value type `u32`.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Storage format of a tensor's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// Plain floats that are all 1, for the factors of a norm.
    Ones,
    /// Blocks of 32 numbers of 4 bits with a scale and a minimum.
    Q4_1,
    /// Blocks of 32 numbers of 8 bits with a scale.
    Q8_0,
}

impl Encoding {
    /// Returns the encoding's value of `enum ggml_type`.
    const fn number(self) -> u32 {
        match self {
            Self::Ones => 0,
            Self::Q4_1 => 3,
            Self::Q8_0 => 8,
        }
    }

    /// Returns the size in bytes of 32 numbers.
    const fn block(self) -> usize {
        match self {
            Self::Ones => 128,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    /// Writes 32 numbers to `block`: ones for `Ones`, else random numbers around zero.
    fn draw(self, rng: &mut StdRng, block: &mut [u8]) {
        if self == Self::Ones {
            for number in block.chunks_exact_mut(4) {
                number.copy_from_slice(&1.0_f32.to_le_bytes());
            }
            return;
        }
        rng.fill(block);
        // A number of 16 bits is 2^(exponent - 15) * 1.fraction, with its sign first.
        let half = |sign: u16, exponent: u16, fraction: u16| sign << 15 | exponent << 10 | fraction & 0x3ff;
        let fraction = u16::from_le_bytes([block[0], block[1]]);
        let scale = match self {
            // 4.6 times the scale, or 73 times, is the standard deviation, which is about 0.05.
            Self::Q4_1 => {
                // The minimum: -8 times the scale.
                block[2..4].copy_from_slice(&half(1, 11, fraction).to_le_bytes());
                half(0, 8, fraction)
            }
            _ => half(0, 4, fraction),
        };
        block[..2].copy_from_slice(&scale.to_le_bytes());
    }
}

/// A tensor with its name, row length, number of rows and encoding.
struct Tensor {
    name: String,
    columns: usize,
    rows: usize,
    encoding: Encoding,
}

impl Tensor {
    fn bytes(&self) -> usize {
        self.columns / 32 * self.rows * self.encoding.block()
    }
}

/// Returns all tensors. The output matrix is shared with the token embeddings.
fn tensors() -> Vec<Tensor> {
    let tensor = |name: String, columns, rows, encoding| Tensor { name, columns, rows, encoding };
    let mut all = vec![
        tensor("token_embd.weight".to_owned(), WIDTH, VOCABULARY, Encoding::Q8_0),
        tensor("output_norm.weight".to_owned(), WIDTH, 1, Encoding::Ones),
    ];
    for layer in 0..LAYERS {
        for (name, columns, rows) in [
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", WIDTH, KEYS),
            ("attn_v", WIDTH, KEYS),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", WIDTH, HIDDEN),
            ("ffn_up", WIDTH, HIDDEN),
            ("ffn_down", HIDDEN, WIDTH),
        ] {
            all.push(tensor(format!("blk.{layer}.{name}.weight"), columns, rows, Encoding::Q4_1));
        }
        for name in ["attn_norm", "ffn_norm"] {
            all.push(tensor(format!("blk.{layer}.{name}.weight"), WIDTH, 1, Encoding::Ones));
        }
    }
    all
}

/// Returns the tokens with their types: unknown, start and end, one for each byte, letters, pairs of letters,
/// and words. `▁` stands for the space before a word.
fn vocabulary(rng: &mut StdRng) -> Vec<(String, i32)> {
    /// Type `NORMAL` of `enum llama_token_type`.
    const NORMAL: i32 = 1;
    const UNKNOWN: i32 = 2;
    const CONTROL: i32 = 3;
    const BYTE: i32 = 6;
    let mut tokens =
        vec![("<unk>".to_owned(), UNKNOWN), ("<s>".to_owned(), CONTROL), ("</s>".to_owned(), CONTROL)];
    tokens.extend((0..=255_u8).map(|byte| (format!("<0x{byte:02X}>"), BYTE)));
    let letters = || ('a'..='z').chain(['▁']);
    let singles = letters().map(String::from);
    let pairs = letters().flat_map(|first| ('a'..='z').map(move |second| [first, second].iter().collect()));
    let mut words: Vec<String> = singles.chain(pairs).collect();
    let mut known: BTreeSet<String> = words.iter().cloned().collect();
    while tokens.len() + words.len() < VOCABULARY {
        let length = rng.random_range(3..9);
        let word: String = (0..length).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect();
        if known.insert(word.clone()) {
            words.push(word);
        }
    }
    tokens.extend(words.into_iter().map(|word| (word, NORMAL)));
    tokens
}

/// Metadata of the file, which precedes the tensors.
#[derive(Default)]
struct Header {
    bytes: Vec<u8>,
    /// Number of metadata keys.
    keys: u64,
}

impl Header {
    fn text(&mut self, text: &str) {
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    fn key(&mut self, name: &str, kind: u32) {
        self.text(name);
        self.bytes.extend(kind.to_le_bytes());
        self.keys += 1;
    }

    fn number(&mut self, name: &str, value: u32) {
        self.key(name, U32);
        self.bytes.extend(value.to_le_bytes());
    }

    fn float(&mut self, name: &str, value: f32) {
        self.key(name, F32);
        self.bytes.extend(value.to_le_bytes());
    }

    fn string(&mut self, name: &str, value: &str) {
        self.key(name, STRING);
        self.text(value);
    }

    /// Starts an array of `count` values, which the caller appends.
    fn array(&mut self, name: &str, kind: u32, count: usize) {
        self.key(name, ARRAY);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend((count as u64).to_le_bytes());
    }

    fn tokens(&mut self, tokens: &[(String, i32)]) {
        self.array("tokenizer.ggml.tokens", STRING, tokens.len());
        for (token, _) in tokens {
            self.text(token);
        }
        // Longer tokens are preferred.
        self.array("tokenizer.ggml.scores", F32, tokens.len());
        for (token, _) in tokens {
            #[allow(clippy::cast_precision_loss, reason = "words are short")]
            let score = token.chars().count() as f32;
            self.bytes.extend(score.to_le_bytes());
        }
        self.array("tokenizer.ggml.token_type", I32, tokens.len());
        for (_, kind) in tokens {
            self.bytes.extend(kind.to_le_bytes());
        }
    }
}

fn header(tensors: &[Tensor], tokens: &[(String, i32)]) -> Vec<u8> {
    let mut keys = Header::default();
    keys.string("general.architecture", "llama");
    keys.string("general.name", "random weights in SmolLM2's shape");
    // Mostly Q4_1.
    keys.number("general.file_type", 3);
    keys.number("general.quantization_version", 2);
    keys.number("general.alignment", ALIGNMENT as u32);
    for (name, value) in [
        ("block_count", LAYERS as u32),
        ("context_length", 8192),
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", HIDDEN as u32),
        ("vocab_size", VOCABULARY as u32),
        ("rope.dimension_count", 64),
        ("attention.head_count", 9),
        ("attention.head_count_kv", 3),
    ] {
        keys.number(&format!("llama.{name}"), value);
    }
    keys.float("llama.rope.freq_base", 100_000.0);
    keys.float("llama.attention.layer_norm_rms_epsilon", 1e-5);
    keys.string("tokenizer.ggml.model", "llama");
    keys.tokens(tokens);
    keys.number("tokenizer.ggml.unknown_token_id", 0);
    keys.number("tokenizer.ggml.bos_token_id", 1);
    keys.number("tokenizer.ggml.eos_token_id", 2);

    let mut whole = b"GGUF".to_vec();
    whole.extend(3_u32.to_le_bytes());
    whole.extend((tensors.len() as u64).to_le_bytes());
    whole.extend(keys.keys.to_le_bytes());
    let mut rest = Header { bytes: whole, keys: 0 };
    rest.bytes.extend(keys.bytes);
    let mut offset = 0;
    for tensor in tensors {
        rest.text(&tensor.name);
        let shape: &[usize] = if tensor.encoding == Encoding::Ones {
            &[tensor.columns]
        } else {
            &[tensor.columns, tensor.rows]
        };
        rest.bytes.extend((shape.len() as u32).to_le_bytes());
        for &length in shape {
            rest.bytes.extend((length as u64).to_le_bytes());
        }
        rest.bytes.extend(tensor.encoding.number().to_le_bytes());
        rest.bytes.extend((offset as u64).to_le_bytes());
        offset = (offset + tensor.bytes()).next_multiple_of(ALIGNMENT);
    }
    let padded = rest.bytes.len().next_multiple_of(ALIGNMENT);
    rest.bytes.resize(padded, 0);
    rest.bytes
}

/// Writes the model to a stream. Equal seeds give equal bytes.
fn write_gguf(out: &mut impl Write, seed: u64) -> io::Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let (tensors, tokens) = (tensors(), vocabulary(&mut rng));
    out.write_all(&header(&tensors, &tokens))?;
    for tensor in &tensors {
        let mut data = vec![0; tensor.bytes().next_multiple_of(ALIGNMENT)];
        for block in data[..tensor.bytes()].chunks_exact_mut(tensor.encoding.block()) {
            tensor.encoding.draw(&mut rng, block);
        }
        out.write_all(&data)?;
    }
    out.flush()
}

/// Writes the model to a new file.
///
/// # Errors
/// Fails if the file cannot be created or written.
pub fn write(path: &Path, seed: u64) -> Result<()> {
    let file = File::create_new(path).with_context(|| format!("make {}", path.display()))?;
    write_gguf(&mut BufWriter::new(file), seed).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// A writer that computes the digest and the length of its input.
    struct Hash(Sha256, usize);

    impl Write for Hash {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            self.1 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn digest(seed: u64) -> (Vec<u8>, usize) {
        let mut hash = Hash(Sha256::new(), 0);
        write_gguf(&mut hash, seed).unwrap();
        (hash.0.finalize().to_vec(), hash.1)
    }

    #[test]
    fn a_seed_makes_one_model_of_the_size_of_smollm2() {
        let one = digest(1);
        assert_eq!(one, digest(1));
        assert_ne!(one.0, digest(2).0);
        // SmolLM2-135M in Q4_1 has 98 MB.
        assert!((96_000_000..101_000_000).contains(&one.1), "{}", one.1);
    }

    #[test]
    fn weights_are_small_and_lie_around_zero() {
        let mut rng = StdRng::seed_from_u64(7);
        // Exact for the normal numbers that are drawn.
        let half = |bytes: &[u8]| {
            let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
            let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
            let exponent = i32::from(bits >> 10 & 31) - 15;
            sign * (1.0 + f64::from(bits & 0x3ff) / 1024.0) * f64::from(exponent).exp2()
        };
        for encoding in [Encoding::Q4_1, Encoding::Q8_0] {
            let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
            for _ in 0..2000 {
                let mut block = vec![0; encoding.block()];
                encoding.draw(&mut rng, &mut block);
                let scale = half(&block[..2]);
                let numbers: Vec<f64> = match encoding {
                    Encoding::Q4_1 => {
                        let least = half(&block[2..4]);
                        block[4..]
                            .iter()
                            .flat_map(|b| [b & 15, b >> 4])
                            .map(|q| scale * f64::from(q) + least)
                            .collect()
                    }
                    _ => block[2..].iter().map(|&q| scale * f64::from(q.cast_signed())).collect(),
                };
                assert_eq!(numbers.len(), 32);
                sum += numbers.iter().sum::<f64>();
                squares += numbers.iter().map(|number| number * number).sum::<f64>();
                count += 32.0;
            }
            let (mean, deviation): (f64, f64) = (sum / count, (squares / count).sqrt());
            assert!(
                mean.abs() < 0.01 && (0.03..0.08).contains(&deviation),
                "{encoding:?}: {mean} {deviation}"
            );
        }
    }

    #[test]
    fn all_tokens_differ() {
        let tokens = vocabulary(&mut StdRng::seed_from_u64(3));
        let names: BTreeSet<&str> = tokens.iter().map(|(token, _)| token.as_str()).collect();
        assert_eq!((tokens.len(), names.len()), (VOCABULARY, VOCABULARY));
    }
}
