//! A test of the readers of images against the real libggml-cuda.so of both CUDA majors: every image unpacks
//! and is read, and the images of one kernel for several architectures, PTX and cubins, have the same
//! parameters.

use std::collections::HashMap;
use std::fs;

use crate::code::layout::Layout;
use crate::{cubin, fatbin, ptx};

/// Reads every image of a fat binary and returns the number of kernels compared.
fn compare(container: &[u8]) -> usize {
    let mut known: HashMap<String, Layout> = HashMap::new();
    let mut compared = 0;
    for entry in fatbin::entries(container).unwrap() {
        let image = entry.unpack().unwrap();
        let kernels = match entry.kind {
            fatbin::Kind::Ptx => {
                let head = ptx::head(&image).unwrap();
                assert_eq!((head.sm, head.specific), (entry.sm, entry.specific));
                ptx::kernels(&image).unwrap()
            }
            fatbin::Kind::Cubin => {
                assert_eq!(cubin::arch(&image).unwrap(), entry.sm);
                cubin::kernels(&image).unwrap()
            }
        };
        for (name, layout) in kernels {
            let first = known.entry(name).or_insert_with(|| layout.clone());
            assert_eq!(*first, layout, "{:?} {}", entry.kind, entry.sm);
            compared += 1;
        }
    }
    compared
}

/// Returns the number of fat binaries in a library, and of the kernels in their images.
fn read(library: &[u8]) -> (usize, usize) {
    let (mut containers, mut kernels, mut at) = (0, 0, 0);
    while let Some(found) = memchr::memmem::find(&library[at..], &fatbin::MAGIC.to_le_bytes()) {
        let start = at + found;
        at = start + 4;
        let Some(header) = library[start..].first_chunk() else { break };
        // The same four bytes in the middle of something else.
        let Ok(length) = fatbin::length(*header) else { continue };
        let Some(container) = library.get(start..start + length) else { continue };
        kernels += compare(container);
        containers += 1;
        at = start + length;
    }
    (containers, kernels)
}

#[test]
fn images_of_a_kernel_agree() {
    for name in ["ggml-cuda12", "ggml-cuda13"] {
        let folder = vgpu_artifacts::fetch(name).unwrap();
        let (containers, kernels) = read(&fs::read(folder.join("libggml-cuda.so")).unwrap());
        assert_eq!(containers, 143, "{name}");
        assert!(kernels > 40_000, "{name}: {kernels} kernels");
    }
}
