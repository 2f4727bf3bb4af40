//! Cases of attention: its softmax alone, and attention as one operation.

use super::common::{USUAL, size};
use crate::case::Cases;
use crate::compare::Limit;
use crate::ffi::{Precision, Type};
use crate::fill::Fill;
use crate::plan::GraphPlan;

const SOFT_MAX: Limit = Limit::Nmse(1e-6);
const ATTENTION: Limit = Limit::Nmse(5e-4);

pub fn add(cases: &mut Cases) {
    soft_max(cases);
    heads(cases);
    cache_types(cases);
    variants(cases);
    latent(cases);
    lightning_indexer(cases);
}

fn soft_max(cases: &mut Cases) {
    for (ne, past) in [([67, 33, 3, 2], 34), ([10, 10, 3, 2], 0), ([129, 65, 2, 1], 64)] {
        cases.add("DIAG_MASK_INF", "f32", format!("{} past={past}", size(ne)), USUAL, move |p| {
            let a = p.uniform(Type::F32, ne);
            vec![p.diag_mask_inf(a, past)]
        });
    }
    for ne in [[67, 5, 3, 2], [16, 2, 32, 1], [1025, 3, 2, 1], [256, 1, 9, 1], [4099, 2, 1, 1], [1, 1, 1, 1]]
    {
        cases.add("SOFT_MAX", "f32", format!("{} no mask", size(ne)), SOFT_MAX, move |p| {
            let a = p.uniform(Type::F32, ne);
            vec![p.soft_max(a, None, 0.1, 0.0)]
        });
        for kind in [Type::F32, Type::F16] {
            for max_bias in [0.0, 8.0] {
                for sinks in [false, true] {
                    let sinks_text = if sinks { " sinks" } else { "" };
                    let detail = format!("{} bias={max_bias}{sinks_text}", size(ne));
                    let types = format!("f32,{}", kind.name());
                    cases.add("SOFT_MAX", types, detail, SOFT_MAX, move |p| {
                        let a = p.uniform(Type::F32, ne);
                        let mask = p.input(kind, [ne[0], ne[1], 1, ne[3]], Fill::Mask);
                        let node = p.soft_max(a, Some(mask), 0.1, max_bias);
                        if sinks {
                            let sinks = p.uniform(Type::F32, [ne[2], 1, 1, 1]);
                            p.soft_max_sinks(node, sinks);
                        }
                        vec![node]
                    });
                }
            }
        }
    }
}

/// Parameters of a flash-attention node.
#[derive(Clone, Copy)]
struct Attention {
    /// Number of elements of a key, and of a value.
    width: (i64, i64),
    /// Number of heads of keys and values, and number of query heads that share each of them.
    heads: (i64, i64),
    /// Number of keys in the cache.
    keys: i64,
    /// Number of queries.
    queries: i64,
    /// Number of sequences.
    sequences: i64,
    /// Types of keys and values.
    kinds: (Type, Type),
    mask: bool,
    sinks: bool,
    max_bias: f32,
    softcap: f32,
    /// Whether keys and values are laid out as in a cache, where the heads of a token are adjacent.
    permuted: bool,
    /// Whether the values are the first elements of the keys.
    shared: bool,
}

impl Attention {
    const fn new(width: i64, kinds: (Type, Type)) -> Self {
        Self {
            width: (width, width),
            heads: (2, 1),
            keys: 113,
            queries: 1,
            sequences: 1,
            kinds,
            mask: true,
            sinks: false,
            max_bias: 0.0,
            softcap: 0.0,
            permuted: true,
            shared: false,
        }
    }

    fn detail(&self) -> String {
        let mut text = format!(
            "{}/{} heads={}x{} keys={} queries={}",
            self.width.0, self.width.1, self.heads.0, self.heads.1, self.keys, self.queries
        );
        for (is, name) in [
            (self.sequences > 1, " sequences"),
            (!self.mask, " nomask"),
            (self.sinks, " sinks"),
            (self.max_bias > 0.0, " alibi"),
            (self.softcap > 0.0, " softcap"),
            (!self.permuted, " plain"),
            (self.shared, " shared"),
        ] {
            if is {
                text.push_str(name);
            }
        }
        text
    }

    fn add(self, cases: &mut Cases) {
        let types = format!("{},{}", self.kinds.0.name(), self.kinds.1.name());
        cases.add("FLASH_ATTN_EXT", types, self.detail(), ATTENTION, move |p| self.build(p));
    }

    fn build<'c>(&self, p: &GraphPlan<'c>) -> Vec<crate::ffi::Tensor<'c>> {
        let range = Fill::Uniform(-1.0, 1.0);
        let (heads, shared_by) = self.heads;
        let axes = [0, 2, 1, 3];
        let ne_q = [self.width.0, self.queries, heads * shared_by, self.sequences];
        let ne_k = [self.width.0, self.keys, heads, self.sequences];
        let ne_v = [self.width.1, self.keys, heads, self.sequences];
        let input = |kind, ne| {
            if self.permuted { p.permuted(kind, ne, axes, range) } else { p.input(kind, ne, range) }
        };
        let q = input(Type::F32, ne_q);
        let k = input(self.kinds.0, ne_k);
        let v = if self.shared {
            let nb = k.nb();
            p.view(k, ne_v[0], ne_v[1], ne_v[2], ne_v[3], nb[1], nb[2], nb[3], 0)
        } else {
            input(self.kinds.1, ne_v)
        };
        let mask =
            self.mask.then(|| p.input(Type::F16, [self.keys, self.queries, 1, self.sequences], Fill::Mask));
        let scale = 1.0 / (self.width.0 as f32).sqrt();
        let node = p.flash_attn(q, k, v, mask, scale, self.max_bias, self.softcap);
        if self.sinks {
            let sinks = p.input(Type::F32, [ne_q[2], 1, 1, 1], Fill::Uniform(-10.0, 10.0));
            p.flash_attn_sinks(node, sinks);
        }
        p.accumulate_in(node, Precision::F32);
        vec![node]
    }
}

const F16: (Type, Type) = (Type::F16, Type::F16);

/// Adds attention with different head widths, query counts, key counts that do or do not fill a tile, and
/// shared heads.
fn heads(cases: &mut Cases) {
    for width in [64, 40, 72, 80, 96, 112, 128, 256] {
        let one = Attention::new(width, F16);
        for (heads, keys, queries) in [
            ((2, 1), 113, 3),
            ((2, 1), 256, 1),
            ((1, 4), 256, 1),
            ((1, 4), 113, 1),
            ((2, 3), 512, 2),
            ((1, 2), 113, 8),
            ((1, 1), 77, 35),
            ((1, 4), 256, 9),
        ] {
            Attention { heads, keys, queries, ..one }.add(cases);
        }
    }
    for width in [64, 128] {
        let one = Attention { heads: (2, 4), keys: 768, ..Attention::new(width, F16) };
        for queries in [1, 5, 65] {
            Attention { queries, ..one }.add(cases);
        }
    }
}

fn cache_types(cases: &mut Cases) {
    for kind in
        [Type::Q8_0, Type::Q4_0, Type::Q4_1, Type::Q5_0, Type::Q5_1, Type::IQ4_NL, Type::BF16, Type::F32]
    {
        for width in [64, 128, 256] {
            for (keys, queries) in [(256, 1), (256, 2), (113, 3), (113, 17)] {
                Attention { keys, queries, ..Attention::new(width, (kind, kind)) }.add(cases);
            }
        }
    }
    for kinds in
        [(Type::Q8_0, Type::Q4_0), (Type::F16, Type::Q8_0), (Type::Q8_0, Type::F16), (Type::Q4_0, Type::F16)]
    {
        for (keys, queries) in [(256, 1), (113, 3)] {
            Attention { keys, queries, ..Attention::new(128, kinds) }.add(cases);
        }
    }
}

fn variants(cases: &mut Cases) {
    for width in [64, 128, 256] {
        for (keys, queries) in [(256, 1), (113, 3), (113, 19)] {
            let one = Attention { keys, queries, heads: (2, 2), ..Attention::new(width, F16) };
            Attention { mask: false, ..one }.add(cases);
            Attention { sinks: true, ..one }.add(cases);
            Attention { max_bias: 8.0, ..one }.add(cases);
            // The CUDA backend supports a soft cap only for these widths, and traps for others.
            if width >= 128 {
                Attention { softcap: 10.0, ..one }.add(cases);
            }
            Attention { permuted: false, ..one }.add(cases);
            Attention { sequences: 3, ..one }.add(cases);
        }
    }
}

/// Adds attention whose keys and values differ in width, as with multi-head latent attention, and very wide
/// heads.
fn latent(cases: &mut Cases) {
    for (width, heads, shared) in
        [((576, 512), (1, 16), true), ((192, 128), (1, 8), false), ((512, 512), (1, 8), false)]
    {
        for queries in [1, 3] {
            let one = Attention::new(width.0, F16);
            Attention { width, heads, keys: 256, queries, shared, permuted: false, ..one }.add(cases);
        }
    }
    let wide = Attention { width: (320, 256), heads: (1, 32), keys: 256, ..Attention::new(320, F16) };
    wide.add(cases);
}

fn lightning_indexer(cases: &mut Cases) {
    for kind in [Type::F16, Type::F32, Type::Q8_0, Type::Q4_0] {
        for (width, heads, keys, queries) in [(128, 64, 256, 3), (128, 32, 77, 1)] {
            let detail = format!("{width} heads={heads} keys={keys} queries={queries}");
            cases.add("LIGHTNING_INDEXER", kind.name(), detail, SOFT_MAX, move |p| {
                let q = p.uniform(Type::F32, [width, heads, queries, 1]);
                let k = p.uniform(kind, [width, 1, keys, 1]);
                let weights = p.uniform(Type::F32, [heads, queries, 1, 1]);
                let mask = p.input(Type::F16, [keys, queries, 1, 1], Fill::Mask);
                vec![p.lightning_indexer(q, k, weights, mask)]
            });
        }
    }
}
