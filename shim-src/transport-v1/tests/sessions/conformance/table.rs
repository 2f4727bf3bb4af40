//! The table of version 1's calls, one row each: what this guest sends for it, byte by byte, or why it never
//! sends it. It is written from the protocol's description, not from the code.

/// An argument word of an expected call.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// The word has exactly this value.
    V(u32),
    /// The word is the low half of the value with this name.
    Lo(&'static str),
    /// The word is the high half of the value with this name.
    Hi(&'static str),
}

/// A part of an expected payload.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    U32(u32),
    /// The bytes are the value with this name, 8 bytes long.
    U64(&'static str),
    F32(f32),
    Text(&'static str),
    /// The bytes are those with this name.
    Blob(&'static str),
}

/// Expected use of a call.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// The first call with this number has these arguments and this payload.
    Sent(&'static [Arg], &'static [Part]),
    /// No call has this number, for the reason given.
    Never(&'static str),
}

use Arg::{Hi, Lo, V};
use Expected::{Never, Sent};
use Part::{Blob, F32, Text, U32, U64};

const FROM_INFO: &str = "0xF0 has said it";
const LOCAL: &str = "the guest's own state";
const REFUSED: &str = "hosts answer 801; the guest says so itself, or does it another way";
const IN_ORDER: &str = "all work is done when its call is: streams and events are the guest's own";
const LIBRARY: &str = "a module does the same";

/// The calls of section 14, in the order of their numbers.
pub const ROWS: &[(u32, &str, Expected)] = &[
    (0x01, "INIT", Sent(&[], &[])),
    (0x02, "DRIVER_GET_VERSION", Never(FROM_INFO)),
    (0x10, "DEVICE_GET_COUNT", Never(LOCAL)),
    (0x11, "DEVICE_GET", Never(LOCAL)),
    (0x12, "DEVICE_GET_NAME", Never(FROM_INFO)),
    (0x13, "DEVICE_GET_ATTRIBUTE", Never(FROM_INFO)),
    (0x14, "DEVICE_TOTAL_MEM", Never(FROM_INFO)),
    (0x15, "DEVICE_GET_UUID", Never(FROM_INFO)),
    (0x16, "DEVICE_COMPUTE_CAPABILITY", Never(FROM_INFO)),
    (0x17, "DEVICE_GET_PROPERTIES", Never(REFUSED)),
    (0x18, "DEVICE_GET_P2P_ATTRIBUTE", Never(REFUSED)),
    (0x20, "CTX_CREATE", Never("there is the primary context alone, which 0x90 retains")),
    (0x21, "CTX_DESTROY", Never("hosts do nothing")),
    (0x22, "CTX_SET_CURRENT", Never(LOCAL)),
    (0x23, "CTX_GET_CURRENT", Never(LOCAL)),
    (0x24, "CTX_PUSH_CURRENT", Never(REFUSED)),
    (0x25, "CTX_POP_CURRENT", Never(REFUSED)),
    (
        0x26,
        "CTX_SYNCHRONIZE",
        Never("a launch waits for itself, and 0x3C is not used, which leaves staging behind"),
    ),
    (0x27, "CTX_GET_DEVICE", Never(LOCAL)),
    (0x28, "CTX_GET_API_VERSION", Sent(&[], &[])),
    (0x30, "MEM_ALLOC", Sent(&[Lo("size"), Hi("size"), V(0), V(0)], &[])),
    (0x31, "MEM_FREE", Sent(&[Lo("freed"), Hi("freed")], &[])),
    (0x32, "MEMCPY_HTOD", Sent(&[Lo("address"), Hi("address"), Lo("bytes"), Hi("bytes")], &[Blob("data")])),
    (0x33, "MEMCPY_DTOH", Sent(&[Lo("address"), Hi("address"), V(2000), V(0)], &[])),
    (0x34, "MEMCPY_DTOD", Sent(&[Lo("other"), Hi("other"), Lo("address"), Hi("address"), V(60), V(0)], &[])),
    (0x35, "MEMSET_D8", Sent(&[Lo("address"), Hi("address"), V(0xab), V(0), V(7), V(0)], &[])),
    (0x36, "MEMSET_D16", Never(REFUSED)),
    (0x37, "MEMSET_D32", Sent(&[Lo("address"), Hi("address"), V(0xdead_beef), V(0), V(5), V(0)], &[])),
    (0x38, "MEM_ALLOC_MANAGED", Never(REFUSED)),
    (0x39, "MEM_HOST_ALLOC", Never(REFUSED)),
    (0x3a, "MEM_FREE_HOST", Never(REFUSED)),
    (0x3b, "MEM_GET_INFO", Sent(&[], &[])),
    (0x3c, "MEMCPY_HTOD_ASYNC", Never("drops what looks like a fat binary (Q19), and 0x32 is no slower")),
    (0x3d, "MEMCPY_DTOH_ASYNC", Never(REFUSED)),
    (0x3e, "MEMCPY_DTOD_ASYNC", Never(REFUSED)),
    (0x40, "MODULE_LOAD_DATA", Sent(&[], &[Blob("image"), Text("\0")])),
    (0x41, "MODULE_LOAD_DATA_EX", Never("its options are dropped: 0x40")),
    (0x42, "MODULE_LOAD_FAT_BINARY", Never("the guest picks the entry for the device, and unpacks it: 0x40")),
    (0x43, "MODULE_UNLOAD", Sent(&[Lo("module"), Hi("module")], &[])),
    (0x44, "MODULE_GET_FUNCTION", Sent(&[Lo("module"), Hi("module")], &[Text("scale\0")])),
    (0x45, "MODULE_GET_GLOBAL", Sent(&[Lo("module"), Hi("module")], &[Text("start\0")])),
    (
        0x50,
        "LAUNCH_KERNEL",
        Sent(
            &[],
            &[
                U64("function"),
                U32(2), // grid
                U32(3),
                U32(5),
                U32(8), // block
                U32(4),
                U32(2),
                U32(128), // dynamic shared memory
                U64("no stream"),
                U32(1),  // parameters: one buffer
                U32(16), // of so many bytes
                U32(1),  // RAW
                U32(0),
                U64("address"), // the buffer, by the kernel's offsets
                U32(0),
                U32(3),
            ],
        ),
    ),
    (0x51, "LAUNCH_COOPERATIVE", Never(REFUSED)),
    (0x60, "STREAM_CREATE", Never(IN_ORDER)),
    (0x61, "STREAM_CREATE_WITH_FLAGS", Never(IN_ORDER)),
    (0x62, "STREAM_CREATE_WITH_PRIORITY", Never(IN_ORDER)),
    (0x63, "STREAM_DESTROY", Never(IN_ORDER)),
    (0x64, "STREAM_SYNCHRONIZE", Never(IN_ORDER)),
    (0x65, "STREAM_QUERY", Never(IN_ORDER)),
    (0x66, "STREAM_WAIT_EVENT", Never(IN_ORDER)),
    (0x70, "EVENT_CREATE", Never(IN_ORDER)),
    (0x71, "EVENT_CREATE_WITH_FLAGS", Never(IN_ORDER)),
    (0x72, "EVENT_DESTROY", Never(IN_ORDER)),
    (0x73, "EVENT_RECORD", Never(IN_ORDER)),
    (0x74, "EVENT_SYNCHRONIZE", Never(IN_ORDER)),
    (0x75, "EVENT_QUERY", Never(IN_ORDER)),
    (0x76, "EVENT_ELAPSED_TIME", Never(IN_ORDER)),
    (0x80, "TEXREF_CREATE", Never(REFUSED)),
    (0x81, "TEXOBJECT_CREATE", Never(REFUSED)),
    (0x90, "PRIMARY_CTX_RETAIN", Sent(&[V(0), V(0)], &[])),
    (0x91, "PRIMARY_CTX_RELEASE", Never("hosts do nothing")),
    (0x92, "PRIMARY_CTX_RESET", Never("the guest frees what it knows, one by one")),
    (0x93, "PRIMARY_CTX_SET_FLAGS", Never("hosts do nothing")),
    (0x94, "PRIMARY_CTX_GET_STATE", Never(LOCAL)),
    (0xa0, "OCCUPANCY_MAX_BLOCKS", Never(REFUSED)),
    (0xa1, "OCCUPANCY_MAX_POTENTIAL_BLOCK_SIZE", Never(REFUSED)),
    (0xa8, "LIBRARY_LOAD_DATA", Never(LIBRARY)),
    (0xa9, "LIBRARY_UNLOAD", Never(LIBRARY)),
    (0xaa, "LIBRARY_GET_MODULE", Never(LIBRARY)),
    (0xac, "CUBLAS_CREATE", Sent(&[], &[])),
    (0xad, "CUBLAS_DESTROY", Never("the one handle of a process ends with its owner, by 0xFE")),
    (0xae, "CUBLAS_SET_STREAM", Never(IN_ORDER)),
    (0xaf, "CUBLAS_GET_STREAM", Never(LOCAL)),
    (0xb0, "FUNC_GET_ATTRIBUTE", Sent(&[V(0), V(0), Lo("function"), Hi("function")], &[])),
    (0xb1, "FUNC_SET_CACHE_CONFIG", Sent(&[Lo("function"), Hi("function"), V(2), V(0)], &[])),
    (0xb2, "GET_ERROR_STRING", Never(REFUSED)),
    (0xb3, "GET_ERROR_NAME", Never(REFUSED)),
    (0xb4, "CUBLAS_SGEMM", Never("0xB5 says the same")),
    (
        0xb5,
        "CUBLAS_GEMM_EX",
        Sent(
            &[],
            &[
                U64("cublas"),
                U64("a"),
                U64("b"),
                U64("c"),
                U32(1), // operations
                U32(0),
                U32(2), // m, n, k
                U32(3),
                U32(4),
                U32(0), // types
                U32(0),
                U32(0),
                U32(5), // leading dimensions
                U32(6),
                U32(7),
                U32(68),       // compute
                U32(u32::MAX), // algorithm
                F32(2.5),
                F32(-1.0),
            ],
        ),
    ),
    (
        0xb6,
        "CUBLAS_GEMM_STRIDED_BATCHED_EX",
        Sent(
            &[],
            &[
                U64("cublas"),
                U64("a"),
                U64("b"),
                U64("c"),
                U64("stride"),
                U64("stride"),
                U64("stride"),
                U32(1),
                U32(0),
                U32(2),
                U32(3),
                U32(4),
                U32(0),
                U32(0),
                U32(0),
                U32(5),
                U32(6),
                U32(7),
                U32(2), // batch
                U32(68),
                U32(u32::MAX),
                F32(2.5),
                F32(-1.0),
            ],
        ),
    ),
    (0xb7, "CUBLASLT_CREATE", Never(REFUSED)),
    (0xb8, "CUBLASLT_DESTROY", Never(REFUSED)),
    (0xb9, "CUBLASLT_MATMUL", Never(REFUSED)),
    (
        0xba,
        "CUBLAS_GEMM_BATCHED_EX",
        Sent(
            &[],
            &[
                U64("cublas"),
                U32(1),
                U32(0),
                U32(2),
                U32(3),
                U32(4),
                U32(0),
                U32(0),
                U32(0),
                U32(5),
                U32(6),
                U32(7),
                U32(2),
                U32(68),
                U32(u32::MAX),
                F32(2.5),
                F32(-1.0),
                U64("a"), // the addresses that lie in device memory
                U64("a"),
                U64("b"),
                U64("b"),
                U64("c"),
                U64("other"),
            ],
        ),
    ),
    (0xbc, "FUNC_GET_PARAM_INFO", Never("the guest reads layouts from the image")),
    (0xf0, "GET_GPU_INFO", Sent(&[], &[])),
    (0xfe, "PROCESS_CLEANUP", Sent(&[Lo("token")], &[])),
];
