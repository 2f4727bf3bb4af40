//! Cases of row selection: the embedding table, and stores into a cache of keys and values.

use super::common::{USUAL, size};
use crate::case::Cases;
use crate::compare::Limit;
use crate::ffi::Type;
use crate::fill::Fill;

pub fn add(cases: &mut Cases) {
    for kind in Type::weights().chain([Type::I32]) {
        let widths = if kind.is_quantized() { vec![256, 768] } else { vec![256, 67, 1] };
        for width in widths {
            for (rows, taken, batch) in [(17, 5, 3), (5, 4, 1), (8, 1, 7)] {
                let detail = format!("{width}x{rows} take {taken} batch={batch}");
                cases.add("GET_ROWS", kind.name(), detail, USUAL, move |p| {
                    let table = p.uniform(kind, [width, rows, batch, 1]);
                    let ids = p.input(Type::I32, [taken, batch, 1, 1], Fill::Below(rows));
                    vec![p.get_rows(table, ids)]
                });
            }
        }
        cases.add("GET_ROWS", kind.name(), "256x9 take 4 of 8 view", USUAL, move |p| {
            let table = p.uniform(kind, [256, 9, 3, 1]);
            let ids = p.part(Type::I32, [4, 3, 1, 1], [2, 1, 1, 1], Fill::Below(9));
            vec![p.get_rows(table, ids)]
        });
    }
    for to in Type::weights() {
        for index in [Type::I64, Type::I32] {
            stores(cases, Type::F32, to, index);
            if !to.is_quantized() {
                stores(cases, Type::F16, to, index);
            }
        }
    }
}

/// Returns whether a cache of keys and values can have this type.
const fn caches(kind: Type) -> bool {
    matches!(
        kind,
        Type::F32
            | Type::F16
            | Type::BF16
            | Type::Q4_0
            | Type::Q4_1
            | Type::Q5_0
            | Type::Q5_1
            | Type::Q8_0
            | Type::IQ4_NL
    )
}

/// Returns the error limit of a store: that of one element rounded to its neighbour, for inputs of +-1.
fn store_limit(to: Type, elements: i64) -> Limit {
    let factor = match to {
        Type::Q2_0 | Type::Q4_0 | Type::Q4_1 | Type::IQ4_NL => 1.0,
        Type::Q5_0 | Type::Q5_1 => 1.0 / 2.0,
        Type::Q8_0 => 1.0 / 8.0,
        _ => return USUAL,
    };
    let step: f64 = factor / 8.0;
    Limit::Nmse(step * step / (0.25 * elements as f64))
}

fn stores(cases: &mut Cases, from: Type, to: Type, index: Type) {
    let types = format!("{},{},{}", from.name(), to.name(), index.name());
    let ragged = 3 * to.block();
    // Size of the destination, and how many rows are stored.
    let mut sizes = vec![([256, 11, 2, 3], 7), ([ragged, 5, 1, 1], 1), ([ragged, 9, 3, 2], 4)];
    if !to.is_quantized() {
        sizes.extend([([31, 7, 2, 3], 3), ([1, 8, 1, 3], 2)]);
    }
    if !caches(to) {
        sizes.truncate(1);
    }
    for (ne, rows) in sizes {
        let [width, _, planes, volumes] = ne;
        let limit = store_limit(to, width * rows * planes * volumes);
        cases.add("SET_ROWS", &types, format!("{} rows={rows}", size(ne)), limit, move |p| {
            let cache = p.input(to, ne, Fill::Constant(0.0));
            let new = p.uniform(from, [width, rows, planes, volumes]);
            let ids = p.input(index, [rows, 1, 1, 1], Fill::Distinct(ne[1]));
            vec![p.set_rows(cache, new, ids)]
        });
        cases.add("SET_ROWS", &types, format!("{} rows={rows} each its own", size(ne)), limit, move |p| {
            let cache = p.input(to, ne, Fill::Constant(0.0));
            let new = p.uniform(from, [width, rows, planes, volumes]);
            let ids = p.input(index, [rows, planes, volumes, 1], Fill::Distinct(ne[1]));
            vec![p.set_rows(cache, new, ids)]
        });
    }
    let limit = store_limit(to, 256 * 3);
    cases.add("SET_ROWS", &types, "256x11 rows=3 of 6 view", limit, move |p| {
        let cache = p.input(to, [256, 11, 1, 1], Fill::Constant(0.0));
        let new = p.part(from, [256, 3, 1, 1], [1, 2, 1, 1], Fill::Uniform(-1.0, 1.0));
        let ids = p.part(index, [3, 1, 1, 1], [2, 1, 1, 1], Fill::Distinct(11));
        vec![p.set_rows(cache, new, ids)]
    });
}
