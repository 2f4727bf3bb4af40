//! Modules and functions: what a driver reads from an image, and which launches are valid.

use std::collections::HashMap;

use vgpu_abi::driver::function_attribute as id;
use vgpu_abi::driver::launch_attribute;
use vgpu_abi::{CUresult, driver::CUlaunchAttribute};
use vgpu_image::layout::{Layout, Param};
use vgpu_image::{cubin, ptx};

use crate::handle::{HandleKind, Handles};
use crate::raw::{Extra, Parameters};
use crate::rule::{CallRefusal, CallResult, Rule};

/// Largest number of threads in a block.
pub const MAX_THREADS: u32 = 1024;
/// Largest shared memory of a block in bytes, unless a function requests more.
pub const SHARED: i32 = 48 << 10;
/// Largest shared memory of a block in bytes for functions that request more than the default.
pub const SHARED_OPTIN: i32 = 227 << 10;
/// Number of blocks in a cluster that every device supports.
const PORTABLE_CLUSTER: u32 = 8;
/// First number that is no launch attribute.
const LAUNCH_ATTRIBUTES: u32 = 17;

#[derive(Debug)]
pub struct ModuleState {
    context: usize,
    kernels: HashMap<String, Layout>,
    /// Text of a PTX image, in which variables are looked up.
    text: Option<String>,
    functions: HashMap<String, usize>,
    /// Addresses of variables that were looked up, by name.
    globals: HashMap<String, u64>,
}

#[derive(Debug)]
pub struct FunctionState {
    pub context: usize,
    module: usize,
    layout: Layout,
    attributes: HashMap<u32, i32>,
    threads: i32,
    local_bytes: i32,
}

/// Grid, block and dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchShape {
    /// Number of blocks in x, y, z.
    pub grid: [u32; 3],
    /// Number of threads in x, y, z.
    pub block: [u32; 3],
    /// Size of the dynamic shared memory in bytes.
    pub shared: u32,
}

impl FunctionState {
    pub fn attribute(&self, attribute: u32) -> CallResult<i32> {
        let usual = match attribute {
            id::MAX_THREADS_PER_BLOCK => self.threads,
            id::LOCAL_SIZE_BYTES => self.local_bytes,
            id::NUM_REGS => 32,
            id::PTX_VERSION | id::BINARY_VERSION => 90,
            id::MAX_DYNAMIC_SHARED_SIZE_BYTES => SHARED,
            id::PREFERRED_SHARED_MEMORY_CARVEOUT => -1,
            _ if attribute < id::MAX => 0,
            _ => return Err(Rule::Argument.into()),
        };
        Ok(self.attributes.get(&attribute).copied().unwrap_or(usual))
    }

    /// Carries out `cuFuncGetParamInfo`. It fails with `INVALID_VALUE` after the last parameter, by which
    /// programs find the end.
    pub fn parameter(&self, index: usize) -> CallResult<Param> {
        Ok(*self.layout.params.get(index).ok_or(CallRefusal::Expected(CUresult::INVALID_VALUE))?)
    }

    /// Carries out `cuFuncSetAttribute`.
    pub fn set_attribute(&mut self, attribute: u32, value: i32) -> CallResult {
        let right = match attribute {
            id::MAX_DYNAMIC_SHARED_SIZE_BYTES => (0..=SHARED_OPTIN).contains(&value),
            id::PREFERRED_SHARED_MEMORY_CARVEOUT => (-1..=100).contains(&value),
            id::REQUIRED_CLUSTER_WIDTH..id::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => value >= 0,
            id::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => matches!(value, 0 | 1),
            id::CLUSTER_SCHEDULING_POLICY_PREFERENCE => (0..=2).contains(&value),
            _ => false,
        };
        if !right {
            return Err(Rule::FunctionAttribute.into());
        }
        self.attributes.insert(attribute, value);
        Ok(())
    }

    /// Checks the shape and the parameters of `cuLaunchKernel`.
    pub fn check(&self, shape: LaunchShape, parameters: Parameters, extra: Extra) -> CallResult {
        let [x, y, z] = shape.grid;
        let [width, height, depth] = shape.block;
        let grid =
            (1..=i32::MAX.cast_unsigned()).contains(&x) && [y, z].iter().all(|n| (1..=65_535).contains(n));
        let block = [width, height].iter().all(|n| (1..=1024).contains(n)) && (1..=64).contains(&depth);
        if !grid || !block || u64::from(width) * u64::from(height) * u64::from(depth) > u64::from(MAX_THREADS)
        {
            return Err(Rule::LaunchShape.into());
        }
        let most = self.attribute(id::MAX_THREADS_PER_BLOCK)?.cast_unsigned();
        if width * height * depth > most {
            return Err(Rule::LaunchResources.into());
        }
        if shape.shared > self.attribute(id::MAX_DYNAMIC_SHARED_SIZE_BYTES)?.cast_unsigned() {
            return Err(Rule::LaunchShared.into());
        }
        self.check_parameters(parameters, extra)
    }

    /// Checks the parameters: one pointer for each, or a buffer of the function's size.
    pub fn check_parameters(&self, parameters: Parameters, extra: Extra) -> CallResult {
        let bytes = self.layout.bytes as usize;
        let right = match (parameters.is_null(), extra.is_null()) {
            (true, true) => bytes == 0,
            (false, true) => true,
            // Compilers lay buffers out as structures, whose ends are aligned.
            (true, false) => (bytes..=bytes.next_multiple_of(16)).contains(&extra.buffer_bytes()?),
            (false, false) => false,
        };
        if right { Ok(()) } else { Err(Rule::LaunchParameters.into()) }
    }

    /// Checks the attributes of `cuLaunchKernelEx`.
    pub fn check_attributes(&self, grid: [u32; 3], attributes: &[CUlaunchAttribute]) -> CallResult {
        for attribute in attributes {
            let words = attribute.words();
            match attribute.id {
                launch_attribute::CLUSTER_DIMENSION => {
                    let divides =
                        words.iter().zip(grid).all(|(&n, blocks)| n > 0 && blocks.is_multiple_of(n));
                    let most = match self.attribute(id::NON_PORTABLE_CLUSTER_SIZE_ALLOWED)? {
                        0 => PORTABLE_CLUSTER,
                        _ => 2 * PORTABLE_CLUSTER,
                    };
                    if !divides {
                        return Err(Rule::LaunchAttributes.into());
                    }
                    if words.iter().product::<u32>() > most {
                        return Err(CallRefusal::Expected(CUresult::INVALID_CLUSTER_SIZE));
                    }
                }
                0..LAUNCH_ATTRIBUTES => {}
                _ => return Err(Rule::LaunchAttributes.into()),
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub struct ModuleTable {
    /// Largest number of threads in a block of any function, and local memory of each thread in bytes.
    threads: i32,
    local_bytes: i32,
    loaded: Handles<ModuleState>,
    functions: Handles<FunctionState>,
}

impl ModuleTable {
    pub const fn new(threads: i32, local_bytes: i32) -> Self {
        Self {
            threads,
            local_bytes,
            loaded: Handles::new(HandleKind::Module),
            functions: Handles::new(HandleKind::Function),
        }
    }

    /// Carries out `cuModuleLoadDataEx`. PTX is compiled up to the version `newest`: 10 × major + minor. A
    /// refusal includes the compiler's log.
    pub fn load(
        &mut self,
        context: usize,
        image: &[u8],
        newest: u32,
    ) -> Result<usize, (CallRefusal, String)> {
        let expected = |status, why: &dyn std::fmt::Display| (CallRefusal::Expected(status), why.to_string());
        let (kernels, text) = if image.starts_with(b"\x7fELF") {
            (cubin::kernels(image).map_err(|error| expected(CUresult::INVALID_IMAGE, &error))?, None)
        } else {
            let head = ptx::outline(image).map_err(|error| expected(CUresult::INVALID_PTX, &error))?;
            let (major, minor) = head.version;
            if 10 * major + minor > newest {
                let log = format!("unsupported .version {major}.{minor}; the newest is {newest} / 10");
                return Err(expected(CUresult::UNSUPPORTED_PTX_VERSION, &log));
            }
            let kernels = ptx::kernels(image).map_err(|error| expected(CUresult::INVALID_PTX, &error))?;
            (kernels, Some(String::from_utf8_lossy(image).into_owned()))
        };
        let kernels = kernels.into_iter().collect();
        Ok(self.loaded.add(ModuleState {
            context,
            kernels,
            text,
            functions: HashMap::new(),
            globals: HashMap::new(),
        }))
    }

    /// Carries out `cuModuleUnload`.
    pub fn unload(&mut self, context: usize, module: usize) -> CallResult {
        self.module(context, module)?;
        self.loaded.remove(module)?;
        self.functions.retain(|function| function.module != module);
        Ok(())
    }

    fn module(&mut self, context: usize, module: usize) -> CallResult<&mut ModuleState> {
        let found = self.loaded.get_mut(module)?;
        if found.context != context {
            return Err(Rule::OtherContext.into());
        }
        Ok(found)
    }

    /// Carries out `cuModuleGetFunction`. It returns the same handle for the same function.
    pub fn function(&mut self, context: usize, module: usize, name: &str) -> CallResult<usize> {
        let found = self.module(context, module)?;
        if let Some(&known) = found.functions.get(name) {
            return Ok(known);
        }
        let layout = found.kernels.get(name).ok_or(CallRefusal::Expected(CUresult::NOT_FOUND))?.clone();
        let (attributes, threads, local_bytes) = (HashMap::new(), self.threads, self.local_bytes);
        let state = FunctionState { context, module, layout, attributes, threads, local_bytes };
        let function = self.functions.add(state);
        self.module(context, module)?.functions.insert(name.to_owned(), function);
        Ok(function)
    }

    /// Carries out `cuModuleGetGlobal`: returns the address and size of a variable of a PTX module. The
    /// address is `None` until [`Self::place_global`] sets it.
    pub fn global(&mut self, context: usize, module: usize, name: &str) -> CallResult<(Option<u64>, u64)> {
        let found = self.module(context, module)?;
        let bytes = variable_bytes(found.text.as_deref().unwrap_or(""), name);
        let bytes = bytes.ok_or(CallRefusal::Expected(CUresult::NOT_FOUND))?;
        Ok((found.globals.get(name).copied(), bytes))
    }

    /// Sets the address of a variable.
    pub fn place_global(&mut self, context: usize, module: usize, name: &str, address: u64) -> CallResult {
        self.module(context, module)?.globals.insert(name.to_owned(), address);
        Ok(())
    }

    pub fn get(&self, context: usize, function: usize) -> CallResult<&FunctionState> {
        let found = self.functions.get(function)?;
        if found.context != context {
            return Err(Rule::OtherContext.into());
        }
        Ok(found)
    }

    pub fn get_mut(&mut self, context: usize, function: usize) -> CallResult<&mut FunctionState> {
        self.get(context, function)?;
        self.functions.get_mut(function)
    }

    /// Removes the objects of a context.
    pub fn end_context(&mut self, context: usize) {
        self.loaded.retain(|module| module.context != context);
        self.functions.retain(|function| function.context != context);
    }
}

/// Returns the size in bytes of a variable in global or constant memory, by its declaration.
fn variable_bytes(text: &str, name: &str) -> Option<u64> {
    let declarations =
        text.split([';', '{', '}']).filter(|part| part.contains(".global") || part.contains(".const"));
    for declaration in declarations {
        let words: Vec<&str> = declaration.split(|c: char| c.is_whitespace() || "[]=,".contains(c)).collect();
        let Some(at) = words.iter().position(|&word| word == name) else { continue };
        let element = words[..at].iter().rev().find_map(|word| {
            let bits = word.strip_prefix('.')?.trim_start_matches(char::is_alphabetic);
            bits.parse::<u64>().ok().map(|bits| bits / 8)
        })?;
        let declared = declaration.split('=').next()?;
        let count: u64 = declared
            .split('[')
            .skip(1)
            .filter_map(|part| part.split(']').next()?.trim().parse::<u64>().ok())
            .product();
        return Some(element * count.max(1));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_their_sizes() {
        let text = ".version 8.0\n.target sm_61\n.visible .global .align 4 .b8 table[16] = {1, 2};\n\
            .const .f32 scale;\n.global .u64 grid[2][3];\n.visible .entry k() { ret; }";
        assert_eq!(variable_bytes(text, "table"), Some(16));
        assert_eq!(variable_bytes(text, "scale"), Some(4));
        assert_eq!(variable_bytes(text, "grid"), Some(48));
        assert_eq!(variable_bytes(text, "k"), None);
    }
}
