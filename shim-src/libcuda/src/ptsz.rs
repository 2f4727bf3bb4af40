//! Exports that exist twice: the plain one, for which stream 0 is the legacy default stream, and a variant
//! `_ptsz` or `_ptds`, for which it is the calling thread's own ("per-thread default stream").

/// The stream that handle 0 stands for in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// Stream 0 is the legacy stream.
    Legacy,
    /// Stream 0 is the calling thread's own default stream.
    PerThread,
}

/// Defines both variants of an export from one body, which receives the meaning of stream 0 as `$default`.
macro_rules! export_ptsz {
    ($(
        $(#[$meta:meta])*
        pub fn $name:ident, fn $twin:ident($($arg:ident : $ty:ty),* $(,)?) |$default:ident| $body:block
    )*) => {
        $(
            const _: () = {
                #[allow(clippy::too_many_arguments, reason = "CUDA's signature and one more")]
                fn ptsz($default: $crate::ptsz::DefaultStream, $($arg: $ty),*) -> $crate::Result $body

                exports! {
                    $(#[$meta])*
                    pub fn $name($($arg: $ty),*) -> CUresult {
                        ptsz($crate::ptsz::DefaultStream::Legacy, $($arg),*)
                    }

                    $(#[$meta])*
                    /// Stream 0 is the calling thread's default stream.
                    pub fn $twin($($arg: $ty),*) -> CUresult {
                        ptsz($crate::ptsz::DefaultStream::PerThread, $($arg),*)
                    }
                }
            };
        )*
    };
}
