//! Macros that declare structures and codes of C.

use core::ffi::CStr;

/// Declares C structures and asserts their sizes and offsets.
macro_rules! layout {
    ($( $(#[$meta:meta])* pub struct $name:ident = $size:literal {
        $( $(#[$fmeta:meta])* pub $field:ident : $ty:ty = $offset:literal, )*
    } )*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub struct $name { $( $(#[$fmeta])* pub $field: $ty, )* }

            const _: () = {
                assert!(size_of::<$name>() == $size);
                $( assert!(core::mem::offset_of!($name, $field) == $offset); )*
            };
        )*
    };
}

/// Returns the C string of a constant whose only zero is its last byte.
pub const fn zero_ended(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the macro ends each text with the only zero in it"),
    }
}
