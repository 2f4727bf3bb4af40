//! Exports that come in two forms: the plain one, for which stream 0 is the legacy stream, and its twin `_ptsz` or `_ptds`, for which it
//! is the calling thread's.

/// Defines both forms around one body, which is told by its variable what stream 0 means.
macro_rules! export_both {
    ($(
        $(#[$meta:meta])*
        pub fn $name:ident, $twin:ident($($arg:ident : $ty:ty),* $(,)?) |$default:ident| $body:block
    )*) => {
        $(
            const _: () = {
                #[allow(clippy::too_many_arguments, reason = "CUDA's signature and one more")]
                fn both($default: $crate::stream::DefaultStream, $($arg: $ty),*) -> $crate::Result $body

                ::vgpu_abi::export! {
                    $(#[$meta])*
                    pub fn $name($($arg: $ty),*) -> ::vgpu_abi::CUresult {
                        both($crate::stream::DefaultStream::Legacy, $($arg),*)
                    }

                    $(#[$meta])*
                    ///
                    /// Stream 0 is the calling thread's.
                    pub fn $twin($($arg: $ty),*) -> ::vgpu_abi::CUresult {
                        both($crate::stream::DefaultStream::PerThread, $($arg),*)
                    }
                }
            };
        )*
    };
}
