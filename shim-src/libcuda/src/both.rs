//! Exports that come in two forms: the plain one, for which stream 0 is the legacy stream, and its twin `_ptsz` or `_ptds`, for which it
//! is the calling thread's.

/// Defines both forms from one body, which is told by its variable what stream 0 means.
#[macro_export]
#[doc(hidden)]
macro_rules! export_both {
    ($(
        $(#[$meta:meta])*
        pub fn $name:ident, $twin:ident($($arg:ident : $ty:ty),* $(,)?) |$default:ident| $body:block
    )*) => {
        $(
            ::vgpu_abi::export! {
                $(#[$meta])*
                pub fn $name($($arg: $ty),*) -> ::vgpu_abi::CUresult {
                    let $default = $crate::stream::DefaultStream::Legacy;
                    $body
                }
            }
            ::vgpu_abi::export! {
                $(#[$meta])*
                ///
                /// Stream 0 is the calling thread's.
                pub fn $twin($($arg: $ty),*) -> ::vgpu_abi::CUresult {
                    let $default = $crate::stream::DefaultStream::PerThread;
                    $body
                }
            }
        )*
    };
}
