//! The loaded libraries, with the calls that need no model.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use super::api::{self, Api, Libraries, Returned};
use super::error::LlamaError;
use super::files::{c_path, find, list, open};
use super::layout::{ContextParams, ModelParams, QuantizeParams, VERSION};
use super::model::{Context, ContextOptions, Model};
use super::sink;
use crate::event::Device;
use crate::log::Level;

/// Values of `GGML_BACKEND_DEVICE_TYPE_GPU` and `GGML_BACKEND_DEVICE_TYPE_IGPU`.
const GPU_TYPES: [c_int; 2] = [1, 2];

/// The loaded llama.cpp libraries.
#[derive(Debug)]
pub struct Llama {
    pub(super) api: &'static Api,
}

impl Llama {
    /// Loads libggml-base, libggml and libllama from `folder`. Log messages of at least the level `log` go to
    /// stderr.
    pub fn load(folder: &Path, log: Level) -> Result<Self, LlamaError> {
        let base = open(&find(folder, "libggml-base.so", |name| name == "libggml-base.so")?)?;
        let library = |prefix: &'static str| {
            move |name: &str| {
                name.starts_with(prefix) && Path::new(name).extension().is_some_and(|end| end == "so")
            }
        };
        let ggml = open(&find(folder, "libggml.so", library("libggml."))?)?;
        let llama = open(&find(folder, "libllama.so", library("libllama."))?)?;
        let api: &'static Api = Box::leak(Box::new(Api::find(Libraries { base, ggml, llama })?));
        let this = Self { api };
        this.check_version()?;
        this.check_layout()?;
        sink::begin(api, log);
        // SAFETY: called once, before anything else that computes.
        unsafe { (api.llama_backend_init)() };
        Ok(this)
    }

    /// Returns the version string of llama.cpp.
    pub fn version(&self) -> String {
        // SAFETY: takes nothing.
        let version = unsafe { (self.api.llama_version)() };
        api::text(version).unwrap_or_default()
    }

    fn check_version(&self) -> Result<(), LlamaError> {
        let version = self.version();
        // Builds from an untagged commit append `-dev`.
        if version.trim_end_matches("-dev") == VERSION { Ok(()) } else { Err(LlamaError::Version(version)) }
    }

    fn check_layout(&self) -> Result<(), LlamaError> {
        let model = self.model_defaults();
        if model != ModelParams::DEFAULT {
            return Err(LlamaError::Layout {
                what: "model",
                found: format!("{model:?}"),
                expected: format!("{:?}", ModelParams::DEFAULT),
            });
        }
        let context = self.context_defaults();
        if context != ContextParams::DEFAULT {
            return Err(LlamaError::Layout {
                what: "context",
                found: format!("{context:?}"),
                expected: format!("{:?}", ContextParams::DEFAULT),
            });
        }
        let quantize = self.quantize_defaults();
        if quantize != QuantizeParams::DEFAULT {
            return Err(LlamaError::Layout {
                what: "quantization",
                found: format!("{quantize:?}"),
                expected: format!("{:?}", QuantizeParams::DEFAULT),
            });
        }
        Ok(())
    }

    pub(super) fn quantize_defaults(&self) -> QuantizeParams {
        // SAFETY: as in `model_defaults`.
        let returned: Returned<QuantizeParams> = unsafe { (self.api.llama_model_quantize_default_params)() };
        returned.value
    }

    fn model_defaults(&self) -> ModelParams {
        // SAFETY: takes nothing; a structure of this size is returned by a hidden pointer, and there is room
        // behind ours. All of its fields are integers and pointers, so that any bytes are a value.
        let returned: Returned<ModelParams> = unsafe { (self.api.llama_model_default_params)() };
        returned.value
    }

    fn context_defaults(&self) -> ContextParams {
        // SAFETY: as above; floats too have no invalid bytes.
        let returned: Returned<ContextParams> = unsafe { (self.api.llama_context_default_params)() };
        returned.value
    }

    /// Loads the backend in the file `path`.
    pub fn load_backend(&self, path: &Path) -> Result<(), LlamaError> {
        let file = c_path(path)?;
        // SAFETY: the path is zero-ended.
        let registry = unsafe { (self.api.ggml_backend_load)(file.as_ptr()) };
        if registry.is_null() { Err(LlamaError::Backend(path.to_owned())) } else { Ok(()) }
    }

    /// Loads the CPU backend of `folder` that rates itself best for this processor, which is also GGML's own
    /// choice. GGML's function for it would load the directory's GPU backends too.
    pub fn load_best_cpu(&self, folder: &Path) -> Result<(), LlamaError> {
        let mut best: Option<(c_int, PathBuf)> = None;
        for path in list(folder, |name| name.starts_with("libggml-cpu-"))? {
            let score = score(&path)?;
            if score > best.as_ref().map_or(0, |best| best.0) {
                best = Some((score, path));
            }
        }
        let (_, path) = best.ok_or_else(|| LlamaError::Missing {
            name: "a libggml-cpu for this processor",
            folder: folder.to_owned(),
        })?;
        self.load_backend(&path)
    }

    /// Returns the devices of all loaded backends.
    pub fn devices(&self) -> Vec<Device> {
        // SAFETY: takes nothing.
        let count = unsafe { (self.api.ggml_backend_dev_count)() };
        (0..count)
            .map(|index| {
                // SAFETY: the index is below the count; devices live as long as their backend, which is never
                // unloaded.
                let device = unsafe { (self.api.ggml_backend_dev_get)(index) };
                // SAFETY: `device` is what GGML returned.
                let name = unsafe { (self.api.ggml_backend_dev_name)(device) };
                // SAFETY: as above.
                let description = unsafe { (self.api.ggml_backend_dev_description)(device) };
                // SAFETY: as above.
                let kind = unsafe { (self.api.ggml_backend_dev_type)(device) };
                Device {
                    name: api::text(name).unwrap_or_default(),
                    description: api::text(description).unwrap_or_default(),
                    gpu: GPU_TYPES.contains(&kind),
                }
            })
            .collect()
    }

    /// Returns the number of the most recent model's layers on GPUs and of all its layers, as llama.cpp
    /// logged them.
    pub fn offloaded(&self) -> Option<(u32, u32)> {
        sink::offloaded()
    }

    /// Loads a model with all of its layers on GPUs, or with none there.
    pub fn model(&self, path: &Path, on_gpu: bool) -> Result<Model, LlamaError> {
        Model::load(
            self.api,
            path,
            ModelParams { n_gpu_layers: if on_gpu { -1 } else { 0 }, ..self.model_defaults() },
        )
    }

    /// Creates a context of `model`.
    pub fn context<'a>(&self, model: &'a Model, options: &ContextOptions) -> Result<Context<'a>, LlamaError> {
        Context::new(model, options.apply(self.context_defaults()))
    }
}

/// Returns the score that a CPU backend gives itself on this processor; 0 means that it cannot run.
fn score(path: &Path) -> Result<c_int, LlamaError> {
    type Score = unsafe extern "C" fn() -> c_int;
    let library = open(path)?;
    // SAFETY: ggml-backend-impl.h: `typedef int (*ggml_backend_score_t)(void)`.
    let score = unsafe { library.get::<Score>(b"ggml_backend_score") };
    let score = score.map_err(|source| LlamaError::Symbol { name: "ggml_backend_score", source })?;
    // SAFETY: takes nothing, and asks the processor what it can.
    Ok(unsafe { score() })
}
