//! Declarations of wire structures: fields with offsets that are checked at compile time, and the digest of
//! names and offsets on which [`crate::TABLE_DIGEST`] is built.

/// A structure that crosses the wire, with a digest of its layout.
pub trait Layout {
    /// Digest of the structure's name, its size, and each field's name and offset.
    const DIGEST: u64;
}

/// Returns the FNV-1a hash of `bytes`, continued from `hash`. It distinguishes builds and gives no
/// protection.
#[must_use]
pub const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        hash ^= bytes[i] as u64;
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// The 64-bit FNV offset basis, with which each [`fnv1a`] digest starts.
pub(crate) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Declares an enum whose variants are the values of a register, with the conversion from that register.
macro_rules! register_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$vmeta:meta])* $variant:ident = $value:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $name {
            $( $(#[$vmeta])* $variant = $value, )*
        }

        impl TryFrom<u32> for $name {
            type Error = u32;

            fn try_from(value: u32) -> Result<Self, u32> {
                match value {
                    $( $value => Ok(Self::$variant), )*
                    other => Err(other),
                }
            }
        }
    };
}

/// Declares a `repr(C)` structure with explicit size and offsets, without implicit padding.
macro_rules! wire_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident = $size:literal {
            $( $(#[$fmeta:meta])* pub $field:ident : $ty:ty = $offset:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
        )]
        #[repr(C)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $ty, )*
        }

        const _: () = {
            assert!(core::mem::size_of::<$name>() == $size);
            $( assert!(core::mem::offset_of!($name, $field) == $offset); )*
        };

        impl $crate::layout::Layout for $name {
            const DIGEST: u64 = {
                let hash = $crate::layout::fnv1a($crate::layout::FNV_START, stringify!($name).as_bytes());
                let hash = $crate::layout::fnv1a(hash, &($size as u64).to_le_bytes());
                $(
                    let hash = $crate::layout::fnv1a(hash, stringify!($field).as_bytes());
                    let hash = $crate::layout::fnv1a(hash, &($offset as u64).to_le_bytes());
                )*
                hash
            };
        }
    };
}
