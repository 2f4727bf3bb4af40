//! Images in files.

use std::ffi::{CStr, OsStr};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;

use vgpu_abi::{CUresult, log};

use crate::Result;
use crate::code::image::Image;

/// Reads the image in a file.
pub fn read(name: &CStr) -> Result<Image> {
    let path = OsStr::from_bytes(name.to_bytes());
    let bytes = std::fs::read(path).map_err(|error| {
        log::error(format_args!("failed to read {}: {error}", path.display()));
        if error.kind() == ErrorKind::NotFound {
            CUresult::FILE_NOT_FOUND
        } else {
            CUresult::OPERATING_SYSTEM
        }
    })?;
    Image::of_file(&bytes)
}
