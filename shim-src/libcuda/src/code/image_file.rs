//! Reads images from files.

use std::ffi::{CStr, OsStr};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vgpu_abi::{CUresult, log};

use crate::Result;
use crate::code::image::Image;

/// Reads the image in the file of this name.
pub fn read(name: &CStr) -> Result<Image> {
    Image::of_file(&contents(Path::new(OsStr::from_bytes(name.to_bytes())))?)
}

/// Reads the whole file at a path.
pub fn contents(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        log::error(format_args!("failed to read {}: {error}", path.display()));
        if error.kind() == ErrorKind::NotFound {
            CUresult::FILE_NOT_FOUND
        } else {
            CUresult::OPERATING_SYSTEM
        }
    })
}
