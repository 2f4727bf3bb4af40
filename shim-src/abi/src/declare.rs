//! What the lists of structures and codes are written with.

use core::ffi::CStr;

/// Declares structures of C whose sizes and offsets are asserted.
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

pub(crate) use layout;

/// A text as C has it, of a constant that ends with a zero.
pub(crate) const fn zero_ended(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the macro ends each text with the only zero in it"),
    }
}
