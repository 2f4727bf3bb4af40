//! Kernel launches. A launch is one message that nobody waits for. Its shape is checked here; its parameters
//! are gathered as the kernel's layout says.

use std::ffi::c_void;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUfunction, CUlaunchAttribute, CUstream, LAUNCH_PARAM, attribute, function_attribute as function_id,
    launch_attribute as id,
};
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, LAUNCH_PROGRAMMATIC, Launch};

use crate::Result;
use crate::code::layout::Layout;
use crate::object::context::Context;
use crate::object::default_stream::find_in;
use crate::object::function::Function;
use crate::object::gpu::Gpu;
use crate::object::library::find_function;
use crate::ptsz::DefaultStream;
use crate::submit::stream;

/// Maximum length in bytes of parameters that are gathered on the stack.
const FEW: usize = 512;

/// All properties of a launch other than its parameters.
#[derive(Clone, Copy, Debug)]
pub struct LaunchShape {
    /// Number of blocks in x, y and z.
    pub grid: [u32; 3],
    /// Number of threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Number of blocks of a cluster in x, y and z; zeros without clusters.
    pub cluster: [u32; 3],
    /// Flags of the launch message.
    pub flags: u32,
    /// Priority of the kernel; lower is more urgent.
    pub priority: i32,
}

/// A kernel's parameters in the form that the program chose.
#[derive(Clone, Copy, Debug)]
pub enum Params {
    /// Array with a pointer to each parameter.
    Each(*const *const c_void),
    /// Address and size of a buffer with all parameters in the kernel's layout.
    Buffer(*const u8, usize),
}

impl Params {
    /// Reads the two arguments of a launch, one of which is null.
    ///
    /// # Safety
    /// The pointers are null or what the manual says.
    pub unsafe fn from_arguments(params: *mut *mut c_void, extra: *mut *mut c_void) -> Result<Self> {
        if extra.is_null() {
            return Ok(Self::Each(params.cast_const().cast()));
        }
        if !params.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let [end, pointer, size] = LAUNCH_PARAM;
        let mut buffer = std::ptr::null();
        let mut bytes = 0;
        let mut at = extra.cast::<usize>();
        loop {
            // SAFETY: the list is pairs of key and value up to the key that ends it, says the caller.
            let key = unsafe { at.read() };
            if key == end {
                return Ok(Self::Buffer(buffer, bytes));
            }
            // SAFETY: as above.
            at = unsafe { at.add(1) };
            // SAFETY: as above.
            let value = unsafe { at.read() };
            // SAFETY: as above.
            at = unsafe { at.add(1) };
            if key == pointer {
                buffer = value as *const u8;
            } else if key == size {
                if value == 0 {
                    return Err(CUresult::INVALID_VALUE);
                }
                // SAFETY: the value of this key points to a size.
                bytes = unsafe { (value as *const usize).read() };
            } else {
                return Err(CUresult::INVALID_VALUE);
            }
        }
    }

    /// Gathers the parameters in a zeroed buffer of the layout's size, and calls `then` with it.
    ///
    /// # Safety
    /// The parameters match the layout.
    #[inline]
    pub unsafe fn gather<R>(self, layout: &Layout, then: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        let bytes = layout.bytes as usize;
        if bytes == 0 {
            return then(&[]);
        }
        match self {
            Self::Buffer(buffer, given) => {
                if buffer.is_null() || given < bytes {
                    return Err(CUresult::INVALID_VALUE);
                }
                // SAFETY: the caller promised a buffer of `given` bytes, which are not fewer.
                then(unsafe { std::slice::from_raw_parts(buffer, bytes) })
            }
            Self::Each(params) => {
                if params.is_null() {
                    return Err(CUresult::INVALID_VALUE);
                }
                if bytes <= FEW {
                    let mut buffer = [0_u8; FEW];
                    // SAFETY: upheld by the caller; the buffer is as long as the layout.
                    unsafe { copy_each(params, layout, &mut buffer[..bytes]) }?;
                    then(&buffer[..bytes])
                } else {
                    let mut buffer = vec![0_u8; bytes];
                    // SAFETY: as above.
                    unsafe { copy_each(params, layout, &mut buffer) }?;
                    then(&buffer)
                }
            }
        }
    }
}

/// Copies each parameter to its offset in the buffer.
///
/// # Safety
/// `params` has a pointer for each parameter of the layout, valid for reading its size.
#[inline]
unsafe fn copy_each(params: *const *const c_void, layout: &Layout, buffer: &mut [u8]) -> Result {
    for (index, param) in layout.params.iter().enumerate() {
        // SAFETY: upheld by the caller: there is a pointer for each parameter.
        let place = unsafe { params.add(index) };
        // SAFETY: as above.
        let from = unsafe { place.read() };
        if from.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let (start, size) = (param.offset as usize, param.size as usize);
        let place = buffer.get_mut(start..start + size).ok_or(CUresult::INVALID_VALUE)?;
        match size {
            // Most parameters have 8 bytes: one load and one store copies them.
            8 => {
                // SAFETY: upheld by the caller: 8 bytes are readable.
                place.copy_from_slice(&unsafe { from.cast::<[u8; 8]>().read() });
            }
            4 => {
                // SAFETY: upheld by the caller: 4 bytes are readable.
                place.copy_from_slice(&unsafe { from.cast::<[u8; 4]>().read() });
            }
            _ => {
                // SAFETY: upheld by the caller: `size` bytes are readable, and nobody writes them during the
                // call.
                place.copy_from_slice(unsafe { std::slice::from_raw_parts(from.cast(), size) });
            }
        }
    }
    Ok(())
}

impl LaunchShape {
    /// Checks the shape against the limits of the device and of a kernel whose attributes are known.
    pub fn check(&self, gpu: &Gpu, function: &Function) -> Result {
        let limit = |id: i32| gpu.attribute(id).max(0).cast_unsigned();
        let mut threads = 1_u32;
        for axis in 0..3 {
            let (blocks, size) = (self.grid[axis], self.block[axis]);
            let offset = axis as i32;
            if blocks == 0
                || size == 0
                || blocks > limit(attribute::MAX_GRID_DIM_X + offset)
                || size > limit(attribute::MAX_BLOCK_DIM_X + offset)
            {
                return Err(CUresult::INVALID_VALUE);
            }
            threads = threads.saturating_mul(size);
        }
        if threads > limit(attribute::MAX_THREADS_PER_BLOCK) {
            return Err(CUresult::INVALID_VALUE);
        }
        if threads > function.known(function_id::MAX_THREADS_PER_BLOCK) {
            return Err(CUresult::LAUNCH_OUT_OF_RESOURCES);
        }
        if self.shared_bytes > function.known(function_id::MAX_DYNAMIC_SHARED_SIZE_BYTES) {
            return Err(CUresult::INVALID_VALUE);
        }
        if self.cluster != [0; 3] {
            let whole =
                self.grid.iter().zip(self.cluster).all(|(&grid, of)| of != 0 && grid.is_multiple_of(of));
            if !whole || limit(attribute::CLUSTER_LAUNCH) == 0 {
                return Err(CUresult::INVALID_CLUSTER_SIZE);
            }
        }
        if self.flags & LAUNCH_COOPERATIVE == 0 {
            return Ok(());
        }
        if limit(attribute::COOPERATIVE_LAUNCH) == 0 {
            return Err(CUresult::NOT_SUPPORTED);
        }
        // All blocks wait for each other, so all must be resident at once. The program learns from this call
        // that they do not fit, and the host is asked once for each shape.
        let each = function.occupancy(threads.cast_signed(), self.shared_bytes as usize, 0)?;
        let room = u64::from(each) * u64::from(limit(attribute::MULTIPROCESSOR_COUNT));
        let blocks = self.grid.iter().map(|&blocks| u64::from(blocks)).fold(1, u64::saturating_mul);
        if blocks > room { Err(CUresult::COOPERATIVE_LAUNCH_TOO_LARGE) } else { Ok(()) }
    }

    /// Returns the launch message for a function with this number.
    pub fn message(&self, function: u32, stream: u32, param_bytes: usize) -> Launch {
        Launch {
            function,
            stream,
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            shared_bytes: self.shared_bytes,
            flags: self.flags,
            param_bytes: param_bytes as u32,
            priority: self.priority,
            reserved: 0,
        }
    }
}

/// Launches a kernel in a context. The handles are those of the call.
///
/// # Safety
/// The parameters match those of the kernel.
#[inline]
pub unsafe fn submit_launch(
    context: &'static Context,
    function: CUfunction,
    shape: &LaunchShape,
    stream: CUstream,
    default: DefaultStream,
    params: Params,
) -> Result {
    let function = find_function(function, context)?;
    let stream = find_in(context, stream, default)?;
    if stream.context() != context.handle() {
        return Err(CUresult::INVALID_HANDLE);
    }
    let number = function.number()?;
    shape.check(context.gpu(), function)?;
    let send =
        |bytes: &[u8]| stream::submit(stream, |stream| shape.message(number, stream, bytes.len()), &[bytes]);
    // SAFETY: upheld by the caller.
    unsafe { params.gather(function.layout(), send) }
}

/// Reads the attributes of `cuLaunchKernelEx`. Hints are ignored; an attribute that demands something
/// impossible fails.
pub fn read_attributes(shape: &mut LaunchShape, attributes: &[CUlaunchAttribute]) -> Result {
    for attribute in attributes {
        let words = attribute.words();
        match attribute.id {
            id::COOPERATIVE if words[0] != 0 => shape.flags |= LAUNCH_COOPERATIVE,
            id::PROGRAMMATIC_STREAM_SERIALIZATION if words[0] != 0 => shape.flags |= LAUNCH_PROGRAMMATIC,
            id::CLUSTER_DIMENSION => shape.cluster = words,
            id::PRIORITY => shape.priority = words[0].cast_signed(),
            id::DEVICE_UPDATABLE_KERNEL_NODE if words[0] != 0 => return Err(CUresult::NOT_SUPPORTED),
            id::IGNORE
            | id::COOPERATIVE
            | id::PROGRAMMATIC_STREAM_SERIALIZATION
            | id::DEVICE_UPDATABLE_KERNEL_NODE
            | id::ACCESS_POLICY_WINDOW
            | id::SYNCHRONIZATION_POLICY
            | id::CLUSTER_SCHEDULING_POLICY_PREFERENCE
            | id::MEM_SYNC_DOMAIN_MAP
            | id::MEM_SYNC_DOMAIN
            | id::PREFERRED_CLUSTER_DIMENSION
            | id::PREFERRED_SHARED_MEMORY_CARVEOUT
            | id::NVLINK_UTIL_CENTRIC_SCHEDULING => {}
            // Events that kernels trigger do not exist here.
            id::PROGRAMMATIC_EVENT | id::LAUNCH_COMPLETION_EVENT => return Err(CUresult::NOT_SUPPORTED),
            _ => return Err(CUresult::INVALID_VALUE),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ptr;

    fn layout(sizes: &[(u32, u32)]) -> Layout {
        let mut layout = Layout::default();
        for &(size, align) in sizes {
            layout.push(size, align).unwrap();
        }
        layout
    }

    fn each(values: &[Vec<u8>]) -> Vec<*const c_void> {
        values.iter().map(|value| value.as_ptr().cast()).collect()
    }

    #[test]
    fn parameters_are_demanded() {
        let one = layout(&[(8, 8)]);
        let gather = |params: Params| {
            // SAFETY: null, or a pointer for the one parameter.
            unsafe { params.gather(&one, |bytes| Ok(bytes.to_vec())) }
        };
        assert_eq!(gather(Params::Each(ptr::null())), Err(CUresult::INVALID_VALUE));
        assert_eq!(gather(Params::Each([ptr::null()].as_ptr())), Err(CUresult::INVALID_VALUE));
        assert_eq!(gather(Params::Buffer(ptr::null(), 8)), Err(CUresult::INVALID_VALUE));
        assert_eq!(gather(Params::Buffer([0_u8; 4].as_ptr(), 4)), Err(CUresult::INVALID_VALUE));
        assert_eq!(gather(Params::Buffer([7_u8; 12].as_ptr(), 12)), Ok(vec![7; 8]), "more than it needs");
        // SAFETY: a kernel without parameters reads none.
        let none = unsafe { Params::Each(ptr::null()).gather(&layout(&[]), |bytes| Ok(bytes.len())) };
        assert_eq!(none, Ok(0));
    }

    #[test]
    fn the_extra_list_is_read() {
        let buffer = [1_u8, 2, 3, 4];
        let size = 4_usize;
        let mut list = [1, buffer.as_ptr() as usize, 2, &raw const size as usize, 0];
        let read = |list: &mut [usize]| {
            // SAFETY: a list of pairs that ends.
            unsafe { Params::from_arguments(ptr::null_mut(), list.as_mut_ptr().cast()) }
        };
        assert!(matches!(read(&mut list), Ok(Params::Buffer(at, 4)) if at == buffer.as_ptr()));
        list[0] = 9;
        assert!(matches!(read(&mut list), Err(CUresult::INVALID_VALUE)));
        let mut both = [ptr::null_mut::<c_void>(); 1];
        // SAFETY: refused before either is read.
        let both = unsafe { Params::from_arguments(both.as_mut_ptr(), list.as_mut_ptr().cast()) };
        assert!(matches!(both, Err(CUresult::INVALID_VALUE)));
    }

    #[test]
    fn attributes_are_taken_or_refused() {
        let shape = LaunchShape {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            cluster: [0; 3],
            flags: 0,
            priority: 0,
        };
        let read = |id, first: u64, second: u64| {
            let mut shape = shape;
            let attribute = CUlaunchAttribute { id, value: [first, second, 0, 0, 0, 0, 0, 0] };
            read_attributes(&mut shape, &[attribute]).map(|()| shape)
        };
        assert_eq!(read(id::COOPERATIVE, 1, 0).unwrap().flags, LAUNCH_COOPERATIVE);
        assert_eq!(read(id::COOPERATIVE, 0, 0).unwrap().flags, 0);
        assert_eq!(read(id::PROGRAMMATIC_STREAM_SERIALIZATION, 1, 0).unwrap().flags, LAUNCH_PROGRAMMATIC);
        assert_eq!(read(id::CLUSTER_DIMENSION, 2 | 3 << 32, 4).unwrap().cluster, [2, 3, 4]);
        assert_eq!(read(id::PRIORITY, u64::from((-3_i32).cast_unsigned()), 0).unwrap().priority, -3);
        assert_eq!(read(id::LAUNCH_COMPLETION_EVENT, 1, 0).unwrap_err(), CUresult::NOT_SUPPORTED);
        assert_eq!(read(99, 1, 0).unwrap_err(), CUresult::INVALID_VALUE);
    }

    proptest! {
        #[test]
        fn gathered_parameters_lie_where_they_should(
            sizes in prop::collection::vec((1_u32..80, 0_u32..5), 1..30), seed: u8,
        ) {
            let sizes: Vec<(u32, u32)> = sizes.into_iter().map(|(size, log)| (size, 1 << log)).collect();
            let layout = layout(&sizes);
            let values: Vec<Vec<u8>> = sizes.iter().enumerate()
                .map(|(i, &(size, _))| (0..size).map(|b| (b as u8).wrapping_mul(7) ^ i as u8 ^ seed | 1).collect())
                .collect();
            let pointers = each(&values);
            // SAFETY: a pointer to each parameter, of its size.
            let bytes = unsafe { Params::Each(pointers.as_ptr()).gather(&layout, |bytes| Ok(bytes.to_vec())) }.unwrap();
            prop_assert_eq!(bytes.len(), layout.bytes as usize);
            let mut rest = bytes.clone();
            for (param, value) in layout.params.iter().zip(&values) {
                let place = param.offset as usize..(param.offset + param.size) as usize;
                prop_assert_eq!(&bytes[place.clone()], &value[..]);
                rest[place].fill(0);
            }
            prop_assert!(rest.iter().all(|&byte| byte == 0), "gaps are zeros");
        }
    }
}
