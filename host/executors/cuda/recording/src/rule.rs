//! Rules of CUDA's documentation that a program can break, each with the status that a driver returns.
//!
//! A call that breaks one is refused, and recorded as refused. Statuses that a correct call may get (not
//! ready, out of memory, an error of earlier work) break no rule.

use vgpu_abi::CUresult;

/// Declares the rules with their statuses and sentences.
macro_rules! rules {
    ($( $(#[$meta:meta])* $name:ident = $status:ident, $sentence:literal; )*) => {
        /// A rule of CUDA's documentation that a program can break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rule { $( $(#[$meta])* $name, )* }

        impl Rule {
            /// All rules in the order of their declaration.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            /// Returns the status of a call that breaks the rule.
            pub const fn status(self) -> CUresult {
                match self { $( Self::$name => CUresult::$status, )* }
            }

            /// Returns the name of the rule in a record.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// Returns a description of the mistake, as a sentence without its full stop.
            pub const fn sentence(self) -> &'static str {
                match self { $( Self::$name => $sentence, )* }
            }
        }
    };
}

rules! {
    /// The manual's chapter "Initialization" makes every function return this status before `cuInit`.
    NotInitialized = NOT_INITIALIZED, "a call before cuInit";
    /// The manual's chapter "Initialization" requires that the flags of `cuInit` are zero.
    InitFlags = INVALID_VALUE, "flags of cuInit that are not zero";
    /// The manual of `cuLaunchHostFunc` states: "The host function must not make any CUDA API calls".
    InHostFunction = NOT_PERMITTED, "a call from a host function of a stream";
    /// An argument must not be null or misaligned where the manual requires memory.
    NullArgument = INVALID_VALUE, "a null or misaligned argument";
    /// An argument must be in the range that the manual states.
    Argument = INVALID_VALUE, "an argument out of its range";
    /// A device's ordinal must be below the number of devices.
    Device = INVALID_DEVICE, "a device that is not there";
    /// A call that needs a current context must come from a thread that has one.
    NoContext = INVALID_CONTEXT, "no context is current in this thread";
    /// A handle of a context must have been created as one.
    UnknownContext = INVALID_CONTEXT, "a handle that is no context";
    /// The manual of `cuCtxDestroy` forbids the use of a destroyed context's handle.
    DestroyedContext = CONTEXT_IS_DESTROYED, "a context that has been destroyed";
    /// A context must not be destroyed while another thread has it current. The manual of `cuCtxDestroy`
    /// states: "It is the responsibility of the calling function to ensure that no API call issues using ctx
    /// while cuCtxDestroy is executing", and leaves such a context dangling in the other thread.
    CurrentElsewhere = INVALID_CONTEXT, "a context is destroyed that another thread has current";
    /// A handle must have been created, and must be of the kind that the call expects.
    UnknownHandle = INVALID_HANDLE, "a handle that was never made, or of another kind";
    /// A handle must not be used after its object has been destroyed.
    DestroyedHandle = INVALID_HANDLE, "a handle that has been destroyed";
    /// A stream, function or event must belong to the current context, and all handles of a call to one
    /// context.
    OtherContext = INVALID_HANDLE, "a handle of another context than the current one";
    /// The default streams cannot be created or destroyed, by the manual's chapter "Stream Management".
    DefaultStream = INVALID_HANDLE, "a default stream where only a made stream can be";
    /// The manual of `cuMemFree` requires "a memory space pointed to by dptr, which must have been returned
    /// by a previous call".
    NoAllocation = INVALID_VALUE, "an address that is the start of no allocation";
    /// Memory must not be used or freed after it has been freed.
    Freed = INVALID_VALUE, "memory that has been freed";
    /// A range must lie within one allocation, or within accessible mappings, by the manual's chapter "Memory
    /// Management".
    OutOfRange = INVALID_VALUE, "a range that is not wholly device memory which the device may access";
    /// The ranges of a `cuMemcpyDtoD` must not overlap, because the result would be undefined.
    Overlap = INVALID_VALUE, "a copy between ranges that overlap";
    /// The manual of `cuMemsetD16` and `cuMemsetD32` requires that "dstDevice pointer and dstPitch offset
    /// must be" two or four byte aligned.
    FillAlignment = INVALID_VALUE, "a fill that is not aligned to its element";
    /// The rows of a fill such as `cuMemsetD2D8` must not overlap.
    FillPitch = INVALID_VALUE, "a pitch that is less than a row";
    /// A range passed to `cuMemHostRegister` must not overlap a registered range.
    RegisteredTwice = HOST_MEMORY_ALREADY_REGISTERED, "host memory that is registered already, or part of it";
    /// The manual of `cuMemHostUnregister` states: "The base address must be the same one specified to
    /// cuMemHostRegister()".
    NotRegistered = HOST_MEMORY_NOT_REGISTERED, "an address that is the start of no registration";
    /// Memory passed to `cuMemFreeHost` must come from `cuMemHostAlloc` or `cuMemAllocHost`.
    NoHostAllocation = INVALID_VALUE, "an address that is the start of no pinned allocation";
    /// Memory passed to `cuMemHostGetDevicePointer` must be pinned and mapped.
    NotMapped = INVALID_VALUE, "host memory that is not mapped for the device";
    /// Host memory must not be unregistered or freed before all copies and memory operations that use it are
    /// complete, because the device would access pages that it no longer owns.
    HostMemoryInUse = INVALID_VALUE, "host memory is taken away under work that uses it";
    /// Since Linux 6.5 pages of files on disks cannot be pinned for writing, so a driver refuses them.
    FileOnDisk = INVALID_VALUE, "registration of a file that is not shared memory";
    /// Memory can only be registered if the device supports registration.
    RegisterUnsupported = NOT_SUPPORTED, "registration of host memory that this device does not support";
    /// Sizes and addresses in calls of `cuMemCreate` and `cuMemMap` must be multiples of the granularity.
    Granularity = INVALID_VALUE, "a size or an address that is no multiple of the granularity";
    /// The size passed to `cuMemAddressReserve` must be of whole pages, and the alignment a power of two.
    Reservation = INVALID_VALUE, "a reservation that is not of whole pages, or of a bad alignment";
    /// The range passed to `cuMemMap` must be "previously reserved with cuMemAddressReserve".
    NotReserved = INVALID_VALUE, "a range that is not reserved";
    /// The range passed to `cuMemMap` must not be mapped already.
    MappedTwice = INVALID_VALUE, "a range that is mapped already";
    /// The manual of `cuMemMap` states that the offset "currently must be zero".
    MapOffset = INVALID_VALUE, "an offset into physical memory that is not zero";
    /// The mapping that `cuMemMap` creates must lie within the physical memory.
    BeyondPhysical = INVALID_VALUE, "a mapping that is larger than its physical memory";
    /// The manual of `cuMemUnmap` states: "The range must be the entire contiguous address range that was
    /// mapped to".
    PartOfMapping = INVALID_VALUE, "a range that cuts a mapping, or that is not mapped";
    /// The manual of `cuMemAddressFree` states: "Both size and address must match what was given to
    /// cuMemAddressReserve and the memory given should not have been mapped".
    StillMapped = INVALID_VALUE, "addresses are freed that are still mapped";
    /// The range passed to `cuMemAddressFree` must be exactly a reservation.
    NoReservation = INVALID_VALUE, "a range that is no reservation";
    /// A handle passed to `cuMemRelease`, or to a call that maps physical memory, must be one of physical
    /// memory.
    NoPhysical = INVALID_VALUE, "a handle that is no physical memory, or that has been released";
    /// A mapping must not be removed before all work that uses it is complete.
    MappingInUse = INVALID_VALUE, "a mapping is taken away under work that uses it";
    /// Both events of `cuEventElapsedTime` must have been recorded.
    NotRecorded = INVALID_HANDLE, "an elapsed time of an event that was never recorded";
    /// Neither event of `cuEventElapsedTime` may have been created with `CU_EVENT_DISABLE_TIMING`.
    NoTiming = INVALID_HANDLE, "an elapsed time of an event without timing";
    /// The word of a stream memory operation must be aligned.
    WordAlignment = INVALID_VALUE, "a memory operation on a word that is not aligned";
    /// The word of a stream memory operation must be in device memory, or in host memory that is registered
    /// and mapped.
    WordMemory = INVALID_VALUE, "a memory operation on memory that the device cannot reach";
    /// A stream memory operation must be one that the device supports.
    WordUnsupported = NOT_SUPPORTED, "a memory operation that this device does not support";
    /// The manual requires of a workspace in `cublasSetWorkspace` that it "has to be aligned to at least 256
    /// bytes", and in `cublasLtMatmul` that it "Must be 256B aligned".
    BlasWorkspace = INVALID_VALUE, "a workspace of cuBLAS that is not aligned to 256 bytes";
    /// `cuStreamBeginCapture` cannot start a capture of the legacy stream.
    CaptureLegacy = STREAM_CAPTURE_UNSUPPORTED, "a capture of the legacy stream";
    /// The stream passed to `cuStreamBeginCapture` must not be capturing already.
    CapturingAlready = ILLEGAL_STATE, "a capture of a stream that is capturing";
    /// The stream passed to `cuStreamEndCapture` must be the one in which a capture was started.
    NotCapturing = ILLEGAL_STATE, "the end of a capture that was never started";
    /// A capture cannot be continued after an error has invalidated it.
    CaptureInvalidated = STREAM_CAPTURE_INVALIDATED, "an operation of a capture that an earlier error ended";
    /// The legacy stream must not be used while a blocking stream captures.
    CaptureImplicit = STREAM_CAPTURE_IMPLICIT, "the legacy stream is used while a blocking stream captures";
    /// A capturing stream must not be queried or waited for, and calls that are unsafe during a capture are
    /// forbidden.
    CaptureUnsupported = STREAM_CAPTURE_UNSUPPORTED, "a call that is not permitted during a capture";
    /// The manual of `cuStreamGetCaptureInfo` states: "All operations other than destroy and node removal are
    /// permitted on the graph while the capture sequence is in progress."
    GraphCaptured = INVALID_VALUE, "a graph is destroyed, or a node of it, while it is captured";
    /// A dependency must be a node of the same graph, and must be named once.
    ForeignNode = INVALID_VALUE, "a dependency that is no node of the graph, or that is named twice";
    /// The data of an edge must be zeros, or describe a programmatic edge, which "may only be used between
    /// kernel nodes".
    EdgeData = INVALID_VALUE, "edge data that CUDA does not define, or a programmatic edge of other nodes";
    /// The manual of `cuStreamGetCaptureInfo` fails a query without a place for edge data if there is
    /// "non-zero edge data for one or more of the current stream dependencies".
    LossyQuery = LOSSY_QUERY, "a query that would hide the data of an edge";
    /// The node passed to `cuGraphExecKernelNodeSetParams` must be a kernel.
    NodeKind = INVALID_VALUE, "a node of another kind than the function sets";
    /// The node passed to `cuGraphExecKernelNodeSetParams` must belong to the graph that was instantiated.
    NodeOfOther = INVALID_VALUE, "a node that the instantiated graph does not have";
    /// The manual of `cuGraphExecKernelNodeSetParams` states: "The owning context of the function cannot
    /// change".
    NodeContext = INVALID_VALUE, "a node is set to a function of another context";
    /// The dimensions passed to `cuLaunchKernel` must be within the device's limits.
    LaunchShape = INVALID_VALUE, "a grid or a block of a shape that the device does not have";
    /// A launch must not have more threads or registers than the function can have.
    LaunchResources = LAUNCH_OUT_OF_RESOURCES, "more threads in a block than the function can have";
    /// The dynamic shared memory of a launch must not exceed what was set for the function.
    LaunchShared = INVALID_VALUE, "more dynamic shared memory than the function was given";
    /// A launch must have one of the two kinds of parameters, of the function's size.
    LaunchParameters = INVALID_VALUE, "parameters of another size than the function's, or of both kinds";
    /// The attributes passed to `cuLaunchKernelEx` must be known, and a cluster must divide the grid.
    LaunchAttributes = INVALID_VALUE, "a launch attribute that is wrong";
    /// The image passed to `cuModuleLoadDataEx` must be of a kind that the driver loads.
    Image = INVALID_IMAGE, "an image that is neither PTX nor a cubin";
    /// The options of `cuLinkCreate` and `cuLinkAddData` must be those that each accepts, with values in
    /// their ranges. An input accepts only those of the compiler.
    LinkOption = INVALID_VALUE, "an option that the linker does not take here, or a value out of its range";
    /// The manual of `cuLinkCreate` states that the values "must remain valid for the life of the CUlinkState
    /// if output options are used".
    LinkValues = INVALID_VALUE, "the values of a link's options did not stay as they were";
    /// The manual of `cuLinkAddData` states: "PTX must be NULL-terminated".
    LinkText = INVALID_VALUE, "PTX for a link that does not end with a zero";
    /// `cuLinkAddData` and `cuLinkComplete` must be called for a "pending linker invocation".
    LinkFinished = INVALID_VALUE, "a link that is complete is added to, or completed again";
    /// The manual of `cuLinkComplete` states that the cubin "is owned by state, so it should be loaded before
    /// state is destroyed".
    LinkedImageGone = INVALID_IMAGE, "the image of a link that has been destroyed";
    /// A descriptor of cuBLASLt must have been created, and must be of the kind that the call expects.
    LtUnknown = INVALID_VALUE, "a description of cuBLASLt's that was never made, or of another kind";
    /// A descriptor of cuBLASLt must not be used after it has been destroyed.
    LtDestroyed = INVALID_VALUE, "a description of cuBLASLt's that has been destroyed";
    /// An attribute passed to `cublasLt*SetAttribute` must be one that the descriptor has.
    LtAttribute = INVALID_VALUE, "an attribute that a description of cuBLASLt's does not have";
    /// The manual of `cublasLt*SetAttribute` refuses a size if "sizeInBytes doesn't match the size of the
    /// internal storage".
    LtAttributeBytes = INVALID_VALUE, "an attribute of cuBLASLt's of another size";
    /// The value of an attribute must be one of its enumeration.
    LtAttributeValue = INVALID_VALUE, "a value that an attribute of cuBLASLt's cannot have";
    /// The matrices of `cublasLtMatmul` must have sizes, types, orders and batches that make a product.
    LtConflict = INVALID_VALUE, "matrices that make no product";
    /// The leading dimension, `CUBLASLT_MATRIX_LAYOUT_LD`, must be large enough that columns or rows do not
    /// overlap.
    LtLeading = INVALID_VALUE, "a leading dimension that is less than a column, or a row, of its matrix";
    /// C and D may be the same memory only for an "in-place matrix multiplication (C == D and Cdesc ==
    /// Ddesc)".
    LtInPlace = INVALID_VALUE, "C and D are one matrix, and have two layouts";
    /// An epilogue with a bias, such as `CUBLASLT_EPILOGUE_BIAS`, needs `CUBLASLT_MATMUL_DESC_BIAS_POINTER`.
    LtBias = INVALID_VALUE, "an epilogue with a bias that has no address";
    /// The value of `CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD` must be at least the rows of D, and the multiple
    /// that the manual requires.
    LtAuxiliary = INVALID_VALUE, "an epilogue's auxiliary matrix without an address, or of a wrong shape";
    /// The algorithm passed to `cublasLtMatmul` must be one that `cublasLtMatmulAlgoGetHeuristic` returned
    /// for the same product.
    LtAlgorithm = INVALID_VALUE, "an algorithm that was not given for this product";
    /// The matrices must have the alignments that `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*` promised to the
    /// algorithm.
    LtAlignment = INVALID_VALUE, "a matrix that is less aligned than its algorithm was told";
    /// The manual of `cublasLtMatmul` refuses a workspace if "workspaceSizeInBytes is less than workspace
    /// required by the configured algo".
    LtWorkspace = INVALID_VALUE, "a workspace that is smaller than the algorithm needs";
    /// An attribute passed to `cuFuncSetAttribute` must be one that can be set, with a value within the
    /// device's limits.
    FunctionAttribute = INVALID_VALUE, "an attribute that cannot be set so";
}

/// Reason for which a call does not return success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The program broke a rule.
    Broken(Rule),
    /// The status is one that a correct program has to expect.
    Expected(CUresult),
}

impl CallRefusal {
    /// Returns the status that the call returns.
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

/// Null and misaligned pointers are refused as an invalid value. No other status is converted without its
/// rule.
impl From<CUresult> for CallRefusal {
    fn from(status: CUresult) -> Self {
        if status == CUresult::INVALID_VALUE {
            Self::Broken(Rule::NullArgument)
        } else {
            Self::Expected(status)
        }
    }
}

/// Result of a call: its value, or the reason for which it is refused.
pub type CallResult<T = ()> = Result<T, CallRefusal>;
