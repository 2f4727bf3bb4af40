//! Tests of the table of properties against the layouts of NVIDIA's headers (`tests/layouts/`, offsets that a
//! C compiler printed), and of the bytes for a device whose attributes are all known.

use std::collections::BTreeMap;

use super::*;

const HEADERS: [(Layout, usize, &str); 3] = [
    (Layout { bytes: BYTES_11, column: 0 }, 728, include_str!("../../tests/layouts/cudaDeviceProp11.tsv")),
    (Layout::V12, 1032, include_str!("../../tests/layouts/cudaDeviceProp12.tsv")),
    (Layout::V13, 1008, include_str!("../../tests/layouts/cudaDeviceProp13.tsv")),
];

/// Fields that are no attributes: three that `fill` writes itself, and those that are zero on Linux.
const OTHERS: [&str; 6] = ["name", "uuid", "totalGlobalMem", "luid", "luidDeviceNodeMask", "reserved"];

/// Parses the offset and size of each field of a header.
fn header(text: &'static str) -> BTreeMap<&'static str, (usize, usize)> {
    let row = |line: &'static str| {
        let columns: Vec<_> = line.split('\t').collect();
        (columns[3], (columns[0].parse().unwrap(), columns[1].parse().unwrap()))
    };
    text.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

#[test]
fn every_field_lies_where_the_headers_have_it() {
    for (layout, bytes, text) in HEADERS {
        assert_eq!(layout.bytes, bytes);
        let mut rest = header(text);
        for field in FIELDS {
            let Some(offset) = field.offset[layout.column].filter(|&offset| offset < bytes) else { continue };
            let expected = rest.remove(field.name);
            let size = field.element * field.attributes.len();
            assert_eq!(expected, Some((offset, size)), "{} of {bytes} bytes", field.name);
        }
        for name in OTHERS {
            rest.remove(name);
        }
        assert!(rest.is_empty(), "fields of {bytes} bytes that nothing fills: {rest:?}");
    }
}

#[test]
fn what_fill_writes_itself_lies_where_the_headers_have_it() {
    for (_, _, text) in HEADERS {
        let header = header(text);
        assert_eq!(header["name"], (common::NAME, common::NAME_BYTES));
        assert_eq!(header["uuid"], (common::UUID, 16));
        assert_eq!(header["totalGlobalMem"], (common::TOTAL_GLOBAL_MEM, 8));
    }
}

/// A device whose attribute N is 1000 + N.
struct KnownAttributes;

impl Source for KnownAttributes {
    fn attribute(&self, id: c_int) -> Result<c_int, CudaError> {
        Ok(1000 + id)
    }

    fn name(&self, into: &mut [u8]) -> Result<(), CudaError> {
        into[..4].copy_from_slice(b"Test");
        Ok(())
    }

    fn uuid(&self) -> Result<[u8; 16], CudaError> {
        Ok(*b"0123456789abcdef")
    }

    fn total(&self) -> Result<usize, CudaError> {
        Ok(6 << 30)
    }
}

fn int(bytes: &[u8], offset: usize) -> i32 {
    i32::from_ne_bytes(bytes[offset..][..4].try_into().unwrap())
}

#[test]
fn the_bytes_are_the_attributes() {
    for layout in [Layout::V12, Layout::V13] {
        let mut bytes = vec![0xff; layout.bytes];
        fill(&mut bytes, layout, &KnownAttributes).unwrap();
        assert_eq!(&bytes[..4], b"Test");
        assert_eq!(&bytes[256..272], b"0123456789abcdef");
        assert_eq!(u64::from_ne_bytes(bytes[288..296].try_into().unwrap()), 6 << 30);
        assert_eq!((int(&bytes, 360), int(&bytes, 364)), (1075, 1076), "compute capability");
        assert_eq!((int(&bytes, 336), int(&bytes, 340), int(&bytes, 344)), (1005, 1006, 1007), "grid");
        assert_eq!(u64::from_ne_bytes(bytes[296..304].try_into().unwrap()), 1008, "shared memory");
    }
    let mut bytes = vec![0; 1032];
    fill(&mut bytes, Layout::V12, &KnownAttributes).unwrap();
    assert_eq!((int(&bytes, 348), int(&bytes, 388), int(&bytes, 584)), (1013, 1016, 1033));
    let mut bytes = vec![0; 1008];
    fill(&mut bytes, Layout::V13, &KnownAttributes).unwrap();
    assert_eq!((int(&bytes, 348), int(&bytes, 384), int(&bytes, 568)), (0, 1016, 1033));
}

#[test]
fn a_failing_device_fails_the_call() {
    struct Failing;
    impl Source for Failing {
        fn attribute(&self, _: c_int) -> Result<c_int, CudaError> {
            Err(CudaError::CUDART_UNLOADING)
        }
        fn name(&self, _: &mut [u8]) -> Result<(), CudaError> {
            Ok(())
        }
        fn uuid(&self) -> Result<[u8; 16], CudaError> {
            Ok([0; 16])
        }
        fn total(&self) -> Result<usize, CudaError> {
            Ok(0)
        }
    }
    let mut bytes = vec![0; 1032];
    assert_eq!(fill(&mut bytes, Layout::V12, &Failing), Err(CudaError::CUDART_UNLOADING));
}
