//! The boundary to C: only this module turns Rust functions into C exports.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Defines exported C functions.
///
/// ```ignore
/// export! {
///     /// Returns the newest CUDA version that the device supports.
///     pub fn cuDriverGetVersion(version: *mut c_int) -> CUresult { ...; Ok(()) }
/// }
/// ```
/// The body is a closure that returns `Result<(), STATUS>`; `?` works in it. A type behind `raw` is
/// returned as it is: `-> raw *const c_char, ptr::null() { ... }`, the expression before the body
/// being the answer after a panic. A panic becomes the status's `UNKNOWN` and a line in the log;
/// it never leaves the function.
///
/// With `--cfg vgpu_core` the symbol is the crate's name, an underscore, and the name: in the static library
/// of all shims two crates export the same names. The linking step gives each object its own names.
///
/// Every export has the safety contract of the CUDA function whose name it bears: its pointers are
/// what the manual says.
#[macro_export]
macro_rules! export {
    () => {};
    (
        $(#[$meta:meta])*
        pub fn $name:ident($($arg:ident : $ty:ty),* $(,)?) -> raw $ret:ty, $default:expr => $body:block
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        /// # Safety
        /// The pointers are what the library's manual says of this function.
        #[cfg_attr(not(vgpu_core), unsafe(no_mangle))]
        #[cfg_attr(
            vgpu_core,
            unsafe(export_name = concat!(env!("CARGO_CRATE_NAME"), "_", stringify!($name)))
        )]
        #[allow(non_snake_case, reason = "the name is CUDA's")]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::export::guard(stringify!($name), move || $body).unwrap_or_else(|| $default)
        }
        $crate::export! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        pub fn $name:ident($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty $body:block
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        /// # Safety
        /// The pointers are what the library's manual says of this function.
        #[cfg_attr(not(vgpu_core), unsafe(no_mangle))]
        #[cfg_attr(
            vgpu_core,
            unsafe(export_name = concat!(env!("CARGO_CRATE_NAME"), "_", stringify!($name)))
        )]
        #[allow(non_snake_case, reason = "the name is CUDA's")]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            let call = move || -> ::core::result::Result<(), $ret> { $body };
            match $crate::export::guard(stringify!($name), call) {
                Some(Ok(())) => <$ret>::SUCCESS,
                Some(Err(status)) => status,
                None => <$ret>::UNKNOWN,
            }
        }
        $crate::export! { $($rest)* }
    };
}

/// Runs `call`. If it panics, returns `None` and logs a line.
#[inline]
pub fn guard<T>(name: &'static str, call: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => Some(value),
        Err(payload) => {
            report(name, payload.as_ref());
            None
        }
    }
}

#[cold]
fn report(name: &'static str, payload: &(dyn Any + Send)) {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    crate::log::error(format_args!("{name}: internal error: {text}"));
}

/// Prevents std's panic hook from printing into the host program's stderr, because [`guard`] logs panics.
/// Each shim has a std of its own, so no other code's hook is affected. Each shim calls it at its first
/// initialisation; a panic before that would print, but no code that can panic runs before it.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}
