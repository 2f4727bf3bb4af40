//! Conversion of a model's weights to another type.

use std::path::Path;

use super::error::LlamaError;
use super::files::c_path;
use super::layout::QuantizeParams;
use super::llama::Llama;

/// Weight types without a per-block offset, which both the CPU's and CUDA's kernels support. For these, both
/// sides round the operands of the weights alike, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Encoding {
    /// 32-bit floats, with which nothing is rounded.
    F32,
    /// 16-bit floats, which are not quantised.
    F16,
    /// 8-bit values in symmetrical blocks of 32.
    #[value(name = "q8_0")]
    Q8_0,
}

impl Encoding {
    /// Returns the value of this encoding in `enum llama_ftype`.
    fn ftype(self) -> i32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 7,
        }
    }
}

impl Llama {
    /// Writes the model `from` to the new file `to` with all weight matrices converted to `encoding`.
    pub fn encode(&self, from: &Path, to: &Path, encoding: Encoding) -> Result<(), LlamaError> {
        let params = QuantizeParams {
            ftype: encoding.ftype(),
            allow_requantize: 1,
            pure: 1,
            ..self.quantize_defaults()
        };
        let (source, target) = (c_path(from)?, c_path(to)?);
        // SAFETY: both paths are zero-ended, and the structure is the library's own, as `check_layout` found.
        let status =
            unsafe { (self.api.llama_model_quantize)(source.as_ptr(), target.as_ptr(), &raw const params) };
        if status == 0 { Ok(()) } else { Err(LlamaError::Encode { from: from.to_owned(), status }) }
    }
}
