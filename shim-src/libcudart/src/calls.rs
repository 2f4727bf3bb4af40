//! Macros for the chapters of the API: `calls!` defines exports, `cu!` calls the driver, and `store!` and
//! `load!` access the program's pointers.

/// Defines calls of the runtime API. A body evaluates to `Result<(), CudaError>`; an error becomes the
/// thread's last error. `pub fn NAME | fn VARIANT [stream] (...)` also defines the `_ptsz` variant, for which
/// stream 0 is the per-thread default stream.
macro_rules! calls {
    () => {};
    (
        $(#[$meta:meta])*
        pub fn $name:ident | fn $variant:ident [$stream:ident] ($($arg:ident : $ty:ty),* $(,)?) $body:block
        $($rest:tt)*
    ) => {
        calls! { $(#[$meta])* pub fn $name($($arg: $ty),*) $body }
        vgpu_abi::export! {
            #[doc = concat!("[`", stringify!($name), "`] whose stream 0 is the per-thread default stream.")]
            pub fn $variant($($arg: $ty),*) -> vgpu_abi::runtime::CudaError {
                let $stream = $crate::ptsz::per_thread($stream);
                // SAFETY: both exports have the same contract, which this one's caller upholds.
                unsafe { $name($($arg),*) }.ok()
            }
        }
        calls! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        pub fn $name:ident($($arg:ident : $ty:ty),* $(,)?) $body:block
        $($rest:tt)*
    ) => {
        vgpu_abi::export! {
            $(#[$meta])*
            pub fn $name($($arg: $ty),*) -> vgpu_abi::runtime::CudaError {
                $crate::thread::record(move || $body)
            }
        }
        calls! { $($rest)* }
    };
}

/// Calls the driver and maps its status: `cu!(cuMemFree_v2(address))?`.
macro_rules! cu {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: pointers among the arguments are either to locals of the right type, or the program's
        // own, of which the caller of the export promised what the manual of the runtime API says, and
        // the driver API asks for no more. Everything else is a value that the driver checks.
        let status = unsafe { ::vgpu_abi::driver::functions::$name($($arg),*) };
        $crate::status::check(status)
    }};
}

/// Stores a value at the program's pointer. A null pointer is an invalid value.
macro_rules! store {
    ($place:expr, $value:expr) => {{
        let place = $place;
        if place.is_null() {
            Err(vgpu_abi::runtime::CudaError::INVALID_VALUE)
        } else {
            let value = $value;
            // SAFETY: not null, and the caller of the export promised that it points to room for the answer.
            unsafe { place.write(value) };
            Ok(())
        }
    }};
}

/// Reads a structure of the program. A null pointer is an invalid value.
macro_rules! load {
    ($place:expr) => {{
        let place = $place;
        if place.is_null() {
            Err(vgpu_abi::runtime::CudaError::INVALID_VALUE)
        } else {
            // SAFETY: not null, and the caller of the export promised that it points to the structure.
            Ok(unsafe { place.read() })
        }
    }};
}
