//! Compares exports with the signatures of the driver API ([`functions`](super::functions)) when the crate
//! that defines them is compiled.
//!
//! An export takes the types of [`arg`](super::arg) in place of pointers, so the two functions have different
//! types. Each argument type lists here the C types that it stands for.

use core::ffi::c_char;

use super::arg::{In, InOut, Out, Text};
use super::status::CUresult;

/// An argument of an export that stands for the type `C` of the driver's signature.
pub trait StandsFor<C> {}

impl<T> StandsFor<T> for T {}
impl<T> StandsFor<*mut T> for Out<T> {}
impl<T: Copy> StandsFor<*mut T> for InOut<T> {}
impl<T> StandsFor<*const T> for In<T> {}
// CUDA's header omits `const` for some parameters.
impl<T> StandsFor<*mut T> for In<T> {}
impl StandsFor<*const c_char> for Text {}

/// A function pointer whose arguments stand for those of the function pointer `D`.
pub trait Exports<D> {}

macro_rules! exports_of {
    ($($own:ident $declared:ident),*) => {
        impl<$($own: StandsFor<$declared>, $declared),*> Exports<unsafe extern "C" fn($($declared),*) -> CUresult>
            for unsafe extern "C" fn($($own),*) -> CUresult
        {
        }
    };
}

exports_of!();
exports_of!(A0 B0);
exports_of!(A0 B0, A1 B1);
exports_of!(A0 B0, A1 B1, A2 B2);
exports_of!(A0 B0, A1 B1, A2 B2, A3 B3);
exports_of!(A0 B0, A1 B1, A2 B2, A3 B3, A4 B4);
exports_of!(A0 B0, A1 B1, A2 B2, A3 B3, A4 B4, A5 B5);
exports_of!(A0 B0, A1 B1, A2 B2, A3 B3, A4 B4, A5 B5, A6 B6);
exports_of!(A0 B0, A1 B1, A2 B2, A3 B3, A4 B4, A5 B5, A6 B6, A7 B7);
exports_of!(A0 B0, A1 B1, A2 B2, A3 B3, A4 B4, A5 B5, A6 B6, A7 B7, A8 B8, A9 B9);
exports_of!(A0 B0, A1 B1, A2 B2, A3 B3, A4 B4, A5 B5, A6 B6, A7 B7, A8 B8, A9 B9, A10 B10);

/// Compiles only if `E`, the type of an export, has the signature `D`.
pub const fn check<E: Exports<D>, D>() {}

/// Defines exports of the driver API as [`export!`](macro@crate::export) does. An export without the
/// signature of its name does not compile.
#[macro_export]
macro_rules! exports {
    ($(
        $(#[$meta:meta])*
        pub fn $name:ident($($arg:ident : $ty:ty),* $(,)?) -> CUresult $body:block
    )*) => {
        $crate::export! { $(
            $(#[$meta])*
            pub fn $name($($arg: $ty),*) -> $crate::CUresult $body
        )* }

        $(
            const _: () = $crate::driver::signature::check::<
                unsafe extern "C" fn($($ty),*) -> $crate::CUresult,
                $crate::driver::functions::$name,
            >();
        )*
    };
}
