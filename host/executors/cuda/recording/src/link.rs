//! The linker: inputs of a link, and the resulting image.
//!
//! Nothing is linked. The image is a cubin with the kernels of all inputs that are PTX or cubins. Undefined
//! and duplicate names are not detected.

use std::collections::BTreeMap;

use vgpu_abi::CUresult;
use vgpu_image::layout::Layout;
use vgpu_image::{cubin, ptx};

use crate::handle::{HandleKind, Handles};
use crate::memory::AddressRange;
use crate::raw::{JitValues, LinkedImage};
use crate::rule::{CallRefusal, CallResult, Rule};

/// Numbers of the `CUjit_option` values that have rules of their own.
mod id {
    pub(super) const THREADS_PER_BLOCK: u32 = 1;
    pub(super) const WALL_TIME: u32 = 2;
    pub(super) const INFO_LOG_BUFFER: u32 = 3;
    pub(super) const INFO_LOG_BYTES: u32 = 4;
    pub(super) const ERROR_LOG_BUFFER: u32 = 5;
    pub(super) const ERROR_LOG_BYTES: u32 = 6;
    pub(super) const OPTIMIZATION_LEVEL: u32 = 7;
    pub(super) const TARGET_FROM_CONTEXT: u32 = 8;
    pub(super) const TARGET: u32 = 9;
    pub(super) const FALLBACK_STRATEGY: u32 = 10;
    pub(super) const GENERATE_DEBUG_INFO: u32 = 11;
    pub(super) const LOG_VERBOSE: u32 = 12;
    pub(super) const GENERATE_LINE_INFO: u32 = 13;
    /// Number of `CU_JIT_OVERRIDE_DIRECTIVE_VALUES`, the last option.
    pub(super) const LAST: u32 = 34;
}

/// Numbers of the `CUjitInputType` values.
mod input {
    pub(super) const CUBIN: u32 = 0;
    pub(super) const PTX: u32 = 1;
    /// Number of the type for fat binaries. The next types are objects, libraries and intermediate code.
    pub(super) const FATBINARY: u32 = 2;
    pub(super) const NVVM: u32 = 5;
}

/// Options by which a link returns values.
const OUTPUTS: [u32; 6] = [
    id::THREADS_PER_BLOCK,
    id::WALL_TIME,
    id::INFO_LOG_BUFFER,
    id::INFO_LOG_BYTES,
    id::ERROR_LOG_BUFFER,
    id::ERROR_LOG_BYTES,
];

/// Options that only `cuLinkCreate` accepts.
const OF_LINKS_ALONE: [u32; 5] =
    [id::WALL_TIME, id::INFO_LOG_BUFFER, id::ERROR_LOG_BUFFER, id::TARGET_FROM_CONTEXT, id::TARGET];

#[derive(Debug)]
struct LinkState {
    context: usize,
    options: Vec<u32>,
    /// Address of the option values in the program.
    values: usize,
    /// The option values when this library read them last.
    seen: Vec<usize>,
    kernels: BTreeMap<String, Layout>,
    /// The image. `None` until the link is complete.
    image: Option<LinkedImage>,
}

#[derive(Debug)]
pub struct Links {
    states: Handles<LinkState>,
    /// Addresses of the images of links that were destroyed.
    gone: Vec<AddressRange>,
}

/// Checks the options of a link or of an input, and their values.
fn check_options(options: &[u32], values: &[usize], of_input: bool) -> CallResult {
    let has = |wanted: u32| options.contains(&wanted);
    let value_of = |wanted: u32| options.iter().position(|&option| option == wanted).map(|at| values[at]);
    // A log needs both a buffer and a size, or neither.
    let log = |buffer: u32, bytes: u32| match (value_of(buffer), value_of(bytes)) {
        (None, None) => true,
        (Some(buffer), Some(bytes)) => buffer != 0 || bytes as u32 == 0,
        _ => false,
    };
    let right = options.iter().zip(values).all(|(&option, &value)| match option {
        id::FALLBACK_STRATEGY => false,
        id::OPTIMIZATION_LEVEL => (value as u32) <= 4,
        id::GENERATE_DEBUG_INFO | id::LOG_VERBOSE | id::GENERATE_LINE_INFO => (value as u32) <= 1,
        _ => option <= id::LAST && !(of_input && OF_LINKS_ALONE.contains(&option)),
    });
    let right = right
        && log(id::INFO_LOG_BUFFER, id::INFO_LOG_BYTES)
        && log(id::ERROR_LOG_BUFFER, id::ERROR_LOG_BYTES)
        && !(has(id::TARGET) && has(id::THREADS_PER_BLOCK));
    if right { Ok(()) } else { Err(Rule::LinkOption.into()) }
}

impl LinkState {
    /// Checks that the program has not changed the option values.
    fn check_values(&self) -> CallResult {
        if !self.options.iter().any(|option| OUTPUTS.contains(option)) {
            return Ok(());
        }
        let now = JitValues::from_kept(self.values).words(self.options.len())?;
        if now == self.seen { Ok(()) } else { Err(Rule::LinkValues.into()) }
    }

    /// Stores an error about an input in the program's log.
    fn complain(&mut self, text: &str) -> CallResult {
        let values = JitValues::from_kept(self.values);
        values.store_errors(&self.options, text);
        self.seen = values.words(self.options.len())?;
        Ok(())
    }
}

impl Links {
    pub const fn new() -> Self {
        Self { states: Handles::new(HandleKind::Link), gone: Vec::new() }
    }

    /// Carries out `cuLinkCreate`.
    pub fn create(&mut self, context: usize, options: &[u32], values: JitValues) -> CallResult<usize> {
        let seen = values.words(options.len())?;
        check_options(options, &seen, false)?;
        let (values, options) = (values.kept(), options.to_vec());
        Ok(self.states.add(LinkState {
            context,
            options,
            values,
            seen,
            kernels: BTreeMap::new(),
            image: None,
        }))
    }

    /// Carries out `cuLinkAddData`.
    pub fn add(
        &mut self,
        state: usize,
        kind: u32,
        data: &[u8],
        options: &[u32],
        values: JitValues,
    ) -> CallResult {
        let link = self.states.get_mut(state)?;
        link.check_values()?;
        check_options(options, &values.words(options.len())?, true)?;
        if link.image.is_some() {
            return Err(Rule::LinkFinished.into());
        }
        let kernels = match kind {
            input::CUBIN => {
                cubin::kernels(data).map_err(|error| (CUresult::INVALID_IMAGE, error.to_string()))
            }
            input::PTX => {
                let text = data.strip_suffix(&[0]).ok_or(Rule::LinkText)?;
                let kernels = ptx::outline(text).and_then(|_| ptx::kernels(text));
                kernels.map_err(|error| (CUresult::INVALID_PTX, error.to_string()))
            }
            input::FATBINARY..=input::NVVM => Ok(Vec::new()),
            _ => return Err(Rule::Argument.into()),
        };
        match kernels {
            Ok(kernels) => {
                link.kernels.extend(kernels);
                Ok(())
            }
            Err((status, why)) => {
                link.complain(&why)?;
                Err(CallRefusal::Expected(status))
            }
        }
    }

    /// Carries out `cuLinkComplete`. It returns the image for devices of compute capability `sm` (90 for
    /// 9.0).
    pub fn complete(&mut self, state: usize, sm: u8) -> CallResult<AddressRange> {
        let link = self.states.get_mut(state)?;
        link.check_values()?;
        if link.image.is_some() {
            return Err(Rule::LinkFinished.into());
        }
        let kernels: Vec<cubin::build::Kernel> =
            link.kernels.iter().map(|(name, layout)| (name.clone(), layout.params.clone(), true)).collect();
        let image = LinkedImage::new(&cubin::build::cubin(&kernels, sm));
        let image = image.ok_or(CallRefusal::Expected(CUresult::OUT_OF_MEMORY))?;
        Ok(link.image.insert(image).range())
    }

    /// Carries out `cuLinkDestroy`.
    pub fn destroy(&mut self, state: usize) -> CallResult {
        self.states.get(state)?.check_values()?;
        let link = self.states.remove(state)?;
        self.gone.extend(link.image.map(LinkedImage::end));
        Ok(())
    }

    /// Checks that an address is not within the image of a destroyed link.
    pub fn check_image(&self, address: u64) -> CallResult {
        if self.gone.iter().any(|range| range.has(AddressRange::new(address, 1))) {
            return Err(Rule::LinkedImageGone.into());
        }
        Ok(())
    }

    /// Removes the links of a context.
    pub fn end_context(&mut self, context: usize) {
        self.states.retain(|link| link.context != context);
    }
}
