//! The signatures of the driver API, for those who define the functions and those who call them.
//!
//! Each name stands for two things: the function that the loader finds in `libcuda.so.1`, and the type of a
//! pointer to it. An object that calls none of the functions needs no libcuda. All of them return a
//! [`CUresult`](super::CUresult); types are those of `cuda.h`.

/// Declares functions of the driver API, and types of pointers to them. A name behind `|` is that of the
/// variant whose stream 0 is the calling thread's default stream.
macro_rules! functions {
    ($( $name:ident $args:tt $(| $twin:ident)?; )*) => {
        $( functions! { @one $name $args } $( functions! { @one $twin $args } )? )*
    };
    (@one $name:ident $args:tt) => {
        unsafe extern "C" {
            #[doc = concat!("Calls `", stringify!($name), "` of the libcuda that the object is linked with.")]
            #[allow(non_snake_case, reason = "the name is CUDA's")]
            pub fn $name $args -> CUresult;
        }

        #[doc = concat!("Type of a pointer to `", stringify!($name), "`.")]
        #[allow(non_camel_case_types, reason = "the name is CUDA's")]
        pub type $name = unsafe extern "C" fn $args -> CUresult;
    };
}

mod code;
mod graph_nodes;
mod memory;
mod memory_operations;
mod state;
mod streams;

pub use code::*;
pub use graph_nodes::*;
pub use memory::*;
pub use memory_operations::*;
pub use state::*;
pub use streams::*;
