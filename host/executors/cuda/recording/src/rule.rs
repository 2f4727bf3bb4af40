//! Rules of CUDA's documentation that a program can break, each with the status that a driver returns.
//!
//! A call that breaks one is refused, and recorded as refused. Statuses that a correct call may get (not
//! ready, out of memory, an error of earlier work) break no rule.

use vgpu_abi::CUresult;

/// Declares the rules with their statuses and sentences.
macro_rules! rules {
    ($( $(#[$meta:meta])* $name:ident = $status:ident, $sentence:literal; )*) => {
        /// A rule of CUDA's documentation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rule { $( $(#[$meta])* $name, )* }

        impl Rule {
            /// Every rule, in the order of their declaration.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            /// Status of a call that breaks the rule.
            pub const fn status(self) -> CUresult {
                match self { $( Self::$name => CUresult::$status, )* }
            }

            /// Name of the rule in a record.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// What was wrong, as a sentence without its full stop.
            pub const fn sentence(self) -> &'static str {
                match self { $( Self::$name => $sentence, )* }
            }
        }
    };
}

rules! {
    /// "Initialization": without `cuInit` every function answers this.
    NotInitialized = NOT_INITIALIZED, "a call before cuInit";
    /// "Initialization": the flags of `cuInit` are zero.
    InitFlags = INVALID_VALUE, "flags of cuInit that are not zero";
    /// `cuLaunchHostFunc`: "The host function must not make any CUDA API calls".
    InHostFunction = NOT_PERMITTED, "a call from a host function of a stream";
    /// An argument that is null, or misaligned, where the manual wants memory.
    NullArgument = INVALID_VALUE, "a null or misaligned argument";
    /// An argument out of the range that the manual gives.
    Argument = INVALID_VALUE, "an argument out of its range";
    /// "Device Management": an ordinal below the number of devices.
    Device = INVALID_DEVICE, "a device that is not there";
    /// "Context Management": a call that needs a current context, in a thread that has none.
    NoContext = INVALID_CONTEXT, "no context is current in this thread";
    /// "Context Management": a context that was never made.
    UnknownContext = INVALID_CONTEXT, "a handle that is no context";
    /// "Context Management", `cuCtxDestroy`: handles of a destroyed context cannot be used.
    DestroyedContext = CONTEXT_IS_DESTROYED, "a context that has been destroyed";
    /// `cuCtxDestroy`: "It is the responsibility of the calling function to ensure that no API call issues
    /// using ctx while cuCtxDestroy is executing", and a context that another thread has current is left
    /// dangling there.
    CurrentElsewhere = INVALID_CONTEXT, "a context is destroyed that another thread has current";
    /// A handle that was never made, or is of another kind.
    UnknownHandle = INVALID_HANDLE, "a handle that was never made, or of another kind";
    /// A handle that has been destroyed.
    DestroyedHandle = INVALID_HANDLE, "a handle that has been destroyed";
    /// A stream, function or event of another context than the current one, or of two contexts in one call.
    OtherContext = INVALID_HANDLE, "a handle of another context than the current one";
    /// "Stream Management": the default streams are not made and not destroyed.
    DefaultStream = INVALID_HANDLE, "a default stream where only a made stream can be";
    /// `cuMemFree`: "a memory space pointed to by dptr, which must have been returned by a previous call".
    NoAllocation = INVALID_VALUE, "an address that is the start of no allocation";
    /// Memory that has been freed already.
    Freed = INVALID_VALUE, "memory that has been freed";
    /// "Memory Management": ranges lie within one allocation, or within accessible mappings.
    OutOfRange = INVALID_VALUE, "a range that is not wholly device memory which the device may access";
    /// `cuMemcpyDtoD`: overlapping ranges have no defined result.
    Overlap = INVALID_VALUE, "a copy between ranges that overlap";
    /// `cuMemsetD16`, `cuMemsetD32`: "dstDevice pointer and dstPitch offset must be" two or four byte
    /// aligned.
    FillAlignment = INVALID_VALUE, "a fill that is not aligned to its element";
    /// `cuMemsetD2D8` and its like: rows do not run into each other.
    FillPitch = INVALID_VALUE, "a pitch that is less than a row";
    /// `cuMemHostRegister`: the range overlaps a registered one.
    RegisteredTwice = HOST_MEMORY_ALREADY_REGISTERED, "host memory that is registered already, or part of it";
    /// `cuMemHostUnregister`: "The base address must be the same one specified to cuMemHostRegister()".
    NotRegistered = HOST_MEMORY_NOT_REGISTERED, "an address that is the start of no registration";
    /// `cuMemFreeHost`: memory of `cuMemHostAlloc` or `cuMemAllocHost` only.
    NoHostAllocation = INVALID_VALUE, "an address that is the start of no pinned allocation";
    /// `cuMemHostGetDevicePointer`: memory that is pinned and mapped.
    NotMapped = INVALID_VALUE, "host memory that is not mapped for the device";
    /// Host memory is unregistered or freed though copies or memory operations that use it are not complete:
    /// the device would reach pages that are no longer its.
    HostMemoryInUse = INVALID_VALUE, "host memory is taken away under work that uses it";
    /// Registration where the device does not support it.
    RegisterUnsupported = NOT_SUPPORTED, "registration of host memory that this device does not support";
    /// `cuMemCreate`, `cuMemMap`: sizes and addresses are multiples of the granularity.
    Granularity = INVALID_VALUE, "a size or an address that is no multiple of the granularity";
    /// `cuMemAddressReserve`: sizes of whole pages, an alignment that is a power of two.
    Reservation = INVALID_VALUE, "a reservation that is not of whole pages, or of a bad alignment";
    /// `cuMemMap`: the range must be "previously reserved with cuMemAddressReserve".
    NotReserved = INVALID_VALUE, "a range that is not reserved";
    /// `cuMemMap`: an address that is mapped already.
    MappedTwice = INVALID_VALUE, "a range that is mapped already";
    /// `cuMemMap`: the offset "currently must be zero".
    MapOffset = INVALID_VALUE, "an offset into physical memory that is not zero";
    /// `cuMemMap`: the mapping lies within the physical memory.
    BeyondPhysical = INVALID_VALUE, "a mapping that is larger than its physical memory";
    /// `cuMemUnmap`: "The range must be the entire contiguous address range that was mapped to".
    PartOfMapping = INVALID_VALUE, "a range that cuts a mapping, or that is not mapped";
    /// `cuMemAddressFree`: "Both size and address must match what was given to cuMemAddressReserve and the
    /// memory given should not have been mapped".
    StillMapped = INVALID_VALUE, "addresses are freed that are still mapped";
    /// `cuMemAddressFree`: the range is exactly a reservation.
    NoReservation = INVALID_VALUE, "a range that is no reservation";
    /// `cuMemRelease` and what takes physical memory.
    NoPhysical = INVALID_VALUE, "a handle that is no physical memory, or that has been released";
    /// Mappings are taken away though work that names them is not complete.
    MappingInUse = INVALID_VALUE, "a mapping is taken away under work that uses it";
    /// `cuEventElapsedTime`: both events must have been recorded.
    NotRecorded = INVALID_HANDLE, "an elapsed time of an event that was never recorded";
    /// `cuEventElapsedTime`: neither was made with `CU_EVENT_DISABLE_TIMING`.
    NoTiming = INVALID_HANDLE, "an elapsed time of an event without timing";
    /// "Stream Memory Operations": aligned words.
    WordAlignment = INVALID_VALUE, "a memory operation on a word that is not aligned";
    /// "Stream Memory Operations": a device pointer, of device memory or of mapped, registered host memory.
    WordMemory = INVALID_VALUE, "a memory operation on memory that the device cannot reach";
    /// "Stream Memory Operations": operations that the device does not support.
    WordUnsupported = NOT_SUPPORTED, "a memory operation that this device does not support";
    /// `cublasSetWorkspace`: the pointer "has to be aligned to at least 256 bytes"; `cublasLtMatmul`: "Must
    /// be 256B aligned".
    BlasWorkspace = INVALID_VALUE, "a workspace of cuBLAS that is not aligned to 256 bytes";
    /// `cuStreamBeginCapture`: the legacy stream cannot capture.
    CaptureLegacy = STREAM_CAPTURE_UNSUPPORTED, "a capture of the legacy stream";
    /// `cuStreamBeginCapture`: the stream is capturing already.
    CapturingAlready = ILLEGAL_STATE, "a capture of a stream that is capturing";
    /// `cuStreamEndCapture`: no capture was started in that stream.
    NotCapturing = ILLEGAL_STATE, "the end of a capture that was never started";
    /// An earlier error made the capture useless.
    CaptureInvalidated = STREAM_CAPTURE_INVALIDATED, "an operation of a capture that an earlier error ended";
    /// The legacy stream while a blocking stream captures.
    CaptureImplicit = STREAM_CAPTURE_IMPLICIT, "the legacy stream is used while a blocking stream captures";
    /// Queries and waits of a capturing stream, and calls that are not safe during a capture.
    CaptureUnsupported = STREAM_CAPTURE_UNSUPPORTED, "a call that is not permitted during a capture";
    /// `cuStreamGetCaptureInfo`: "All operations other than destroy and node removal are permitted on the graph
    /// while the capture sequence is in progress."
    GraphCaptured = INVALID_VALUE, "a graph is destroyed, or a node of it, while it is captured";
    /// "Graph Management": a node of another graph, or given twice.
    ForeignNode = INVALID_VALUE, "a dependency that is no node of the graph, or that is named twice";
    /// `cuGraphExecKernelNodeSetParams`: the node is a kernel.
    NodeKind = INVALID_VALUE, "a node of another kind than the function sets";
    /// `cuGraphExecKernelNodeSetParams`: the node is of the graph that was instantiated.
    NodeOfOther = INVALID_VALUE, "a node that the instantiated graph does not have";
    /// `cuGraphExecKernelNodeSetParams`: "The owning context of the function cannot change".
    NodeContext = INVALID_VALUE, "a node is set to a function of another context";
    /// `cuLaunchKernel`: dimensions within the device's limits.
    LaunchShape = INVALID_VALUE, "a grid or a block of a shape that the device does not have";
    /// `cuLaunchKernel`: more threads or registers than the function can have.
    LaunchResources = LAUNCH_OUT_OF_RESOURCES, "more threads in a block than the function can have";
    /// `cuLaunchKernel`: dynamic shared memory beyond what the function was given.
    LaunchShared = INVALID_VALUE, "more dynamic shared memory than the function was given";
    /// `cuLaunchKernel`: either one kind of parameters or the other, of the function's size.
    LaunchParameters = INVALID_VALUE, "parameters of another size than the function's, or of both kinds";
    /// `cuLaunchKernelEx`: attributes that are known, clusters that divide the grid.
    LaunchAttributes = INVALID_VALUE, "a launch attribute that is wrong";
    /// `cuModuleLoadDataEx`: an image of a kind that the driver loads.
    Image = INVALID_IMAGE, "an image that is neither PTX nor a cubin";
    /// `cuLinkCreate`, `cuLinkAddData`: the options that each takes, with values in their ranges; an input
    /// takes those of the compiler alone.
    LinkOption = INVALID_VALUE, "an option that the linker does not take here, or a value out of its range";
    /// `cuLinkCreate`: the values "must remain valid for the life of the CUlinkState if output options are
    /// used".
    LinkValues = INVALID_VALUE, "the values of a link's options did not stay as they were";
    /// `cuLinkAddData`: "PTX must be NULL-terminated".
    LinkText = INVALID_VALUE, "PTX for a link that does not end with a zero";
    /// `cuLinkAddData`, `cuLinkComplete`: they are for a "pending linker invocation".
    LinkFinished = INVALID_VALUE, "a link that is complete is added to, or completed again";
    /// `cuLinkComplete`: the cubin "is owned by state, so it should be loaded before state is destroyed".
    LinkedImageGone = INVALID_IMAGE, "the image of a link that has been destroyed";
    /// A description of cuBLASLt's that was never made, or is of another kind.
    LtUnknown = INVALID_VALUE, "a description of cuBLASLt's that was never made, or of another kind";
    /// A description of cuBLASLt's that has been destroyed.
    LtDestroyed = INVALID_VALUE, "a description of cuBLASLt's that has been destroyed";
    /// `cublasLt*SetAttribute`: attributes that the description has.
    LtAttribute = INVALID_VALUE, "an attribute that a description of cuBLASLt's does not have";
    /// `cublasLt*SetAttribute`: "sizeInBytes doesn't match the size of the internal storage".
    LtAttributeBytes = INVALID_VALUE, "an attribute of cuBLASLt's of another size";
    /// Values that the attribute's enumeration has.
    LtAttributeValue = INVALID_VALUE, "a value that an attribute of cuBLASLt's cannot have";
    /// `cublasLtMatmul`: matrices whose sizes, types, orders or batches make no product.
    LtConflict = INVALID_VALUE, "matrices that make no product";
    /// `CUBLASLT_MATRIX_LAYOUT_LD`: large enough that columns, or rows, do not overlap.
    LtLeading = INVALID_VALUE, "a leading dimension that is less than a column, or a row, of its matrix";
    /// `cublasLtMatmul`: "in-place matrix multiplication (C == D and Cdesc == Ddesc)".
    LtInPlace = INVALID_VALUE, "C and D are one matrix, and have two layouts";
    /// `CUBLASLT_EPILOGUE_BIAS` and those with it need `CUBLASLT_MATMUL_DESC_BIAS_POINTER`.
    LtBias = INVALID_VALUE, "an epilogue with a bias that has no address";
    /// `CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD`: at least the rows of D, of the multiple that the manual has.
    LtAuxiliary = INVALID_VALUE, "an epilogue's auxiliary matrix without an address, or of a wrong shape";
    /// `cublasLtMatmul`: an algorithm is what `cublasLtMatmulAlgoGetHeuristic` gave for the same product.
    LtAlgorithm = INVALID_VALUE, "an algorithm that was not given for this product";
    /// `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*`: what the algorithm may rely on.
    LtAlignment = INVALID_VALUE, "a matrix that is less aligned than its algorithm was told";
    /// `cublasLtMatmul`: "workspaceSizeInBytes is less than workspace required by the configured algo".
    LtWorkspace = INVALID_VALUE, "a workspace that is smaller than the algorithm needs";
    /// `cuFuncSetAttribute`: attributes that can be set, within the device's limits.
    FunctionAttribute = INVALID_VALUE, "an attribute that cannot be set so";
}

/// Why a call does not answer success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The program broke a rule.
    Broken(Rule),
    /// The program has to expect this status.
    Expected(CUresult),
}

impl CallRefusal {
    /// What the call answers.
    pub const fn status(self) -> CUresult {
        match self {
            Self::Broken(rule) => rule.status(),
            Self::Expected(status) => status,
        }
    }
}

impl From<Rule> for CallRefusal {
    fn from(rule: Rule) -> Self {
        Self::Broken(rule)
    }
}

/// Arguments refuse null and misaligned pointers by an invalid value, and nothing else answers a bare status.
impl From<CUresult> for CallRefusal {
    fn from(status: CUresult) -> Self {
        if status == CUresult::INVALID_VALUE {
            Self::Broken(Rule::NullArgument)
        } else {
            Self::Expected(status)
        }
    }
}

/// What a call comes to.
pub type CallResult<T = ()> = Result<T, CallRefusal>;
