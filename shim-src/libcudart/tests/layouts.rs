//! Tests of the structures of `vgpu_abi::runtime` against NVIDIA's headers (`layouts/`: offsets and sizes
//! that a C compiler printed). Those of properties are tested where they are filled.

use std::collections::BTreeMap;

use vgpu_abi::runtime::{
    Dim3, Extent, FuncAttributes, KernelNodeParams, LaunchConfig, Memcpy3DParms, Memcpy3DPeerParms,
    MemsetParams, PitchedPtr, PointerAttributes12, PointerAttributes13, Position,
};

type Layout = (usize, &'static [(&'static str, usize)]);

/// Structures that are the same in every version.
const COMMON: [(&str, Layout); 10] = [
    ("dim3", Dim3::LAYOUT),
    ("cudaFuncAttributes", FuncAttributes::LAYOUT),
    ("cudaLaunchConfig_st", LaunchConfig::LAYOUT),
    ("cudaExtent", Extent::LAYOUT),
    ("cudaPos", Position::LAYOUT),
    ("cudaPitchedPtr", PitchedPtr::LAYOUT),
    ("cudaMemcpy3DParms", Memcpy3DParms::LAYOUT),
    ("cudaMemcpy3DPeerParms", Memcpy3DPeerParms::LAYOUT),
    ("cudaMemsetParams", MemsetParams::LAYOUT),
    ("cudaKernelNodeParams", KernelNodeParams::LAYOUT),
];

/// Parses a header: the size of each structure under the name "-", and the offset of each field.
fn header(text: &'static str) -> BTreeMap<(&'static str, &'static str), usize> {
    let row = |line: &'static str| {
        let columns: Vec<_> = line.split('\t').collect();
        let number = if columns[3] == "-" { columns[2] } else { columns[1] };
        ((columns[0], columns[3]), number.parse().unwrap())
    };
    text.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

fn compare(header: &BTreeMap<(&str, &str), usize>, name: &str, (size, fields): Layout) {
    assert_eq!(header.get(&(name, "-")), Some(&size), "size of {name}");
    for &(field, offset) in fields {
        // The reserved part starts later where a newer version names some of its fields.
        if field != "reserved" {
            let field = field.trim_start_matches("r#");
            assert_eq!(header.get(&(name, field)), Some(&offset), "{name}.{field}");
        }
    }
}

#[test]
fn structures_are_those_of_the_headers() {
    let versions = [
        (include_str!("layouts/structures12.tsv"), PointerAttributes12::LAYOUT),
        (include_str!("layouts/structures130.tsv"), PointerAttributes13::LAYOUT),
        (include_str!("layouts/structures13.tsv"), PointerAttributes13::LAYOUT),
    ];
    for (text, pointer) in versions {
        let header = header(text);
        for (name, layout) in COMMON {
            compare(&header, name, layout);
        }
        compare(&header, "cudaPointerAttributes", pointer);
    }
}
