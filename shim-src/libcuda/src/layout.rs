//! Where a kernel's parameters lie in its parameter buffer. Many kernels share a layout, and a layout is read at each
//! launch, so each is kept once and for good.

use std::collections::HashSet;

use vgpu_wire::body::launch::PARAM_BYTES_MAX;

use crate::sync::Mutex;

/// A parameter's place in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    /// Bytes from the start.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// A kernel's parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// In their order; offsets rise and none overlaps the next.
    pub params: Vec<Param>,
    /// Bytes up to the end of the last.
    pub bytes: u32,
}

/// Why parameters cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// More bytes than any kernel can have.
    #[error("parameters of more than {PARAM_BYTES_MAX} bytes")]
    TooLarge,
    /// Parameters overlap, or are not in their order.
    #[error("parameters that overlap")]
    Overlap,
}

impl Layout {
    /// Puts a parameter behind the others.
    pub fn push(&mut self, size: u32, align: u32) -> Result<(), LayoutError> {
        let offset = self.bytes.checked_next_multiple_of(align.max(1)).ok_or(LayoutError::TooLarge)?;
        self.put(Param { offset, size })
    }

    /// Puts a parameter at its place.
    pub fn put(&mut self, param: Param) -> Result<(), LayoutError> {
        let end = param.offset.checked_add(param.size).filter(|&end| end <= PARAM_BYTES_MAX);
        let end = end.ok_or(LayoutError::TooLarge)?;
        if param.offset < self.bytes {
            return Err(LayoutError::Overlap);
        }
        self.params.push(param);
        self.bytes = end;
        Ok(())
    }

    /// The one layout that is like this.
    pub fn intern(self) -> &'static Self {
        static LAYOUTS: Mutex<Option<HashSet<&'static Layout>>> = Mutex::new(None);
        let mut layouts = LAYOUTS.lock();
        let layouts = layouts.get_or_insert_with(HashSet::new);
        if let Some(known) = layouts.get(&self) {
            return known;
        }
        let kept: &'static Self = Box::leak(Box::new(self));
        layouts.insert(kept);
        kept
    }
}

/// The kernels of an image, by name.
#[derive(Clone, Debug, Default)]
pub struct Kernels(Vec<(Box<str>, &'static Layout)>);

impl Kernels {
    /// Of names with their layouts.
    pub fn new(kernels: impl IntoIterator<Item = (String, Layout)>) -> Self {
        let mut list: Vec<(Box<str>, &'static Layout)> =
            kernels.into_iter().map(|(name, layout)| (name.into_boxed_str(), layout.intern())).collect();
        list.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        list.dedup_by(|a, b| a.0 == b.0);
        Self(list)
    }

    /// The layout of a kernel.
    pub fn get(&self, name: &str) -> Option<&'static Layout> {
        let index = self.0.binary_search_by(|kernel| (*kernel.0).cmp(name)).ok()?;
        Some(self.0[index].1)
    }

    /// All names.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|kernel| &*kernel.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_aligned_one_after_the_other() {
        let mut layout = Layout::default();
        for (size, align) in [(1, 1), (8, 8), (4, 4), (3, 1), (16, 16)] {
            layout.push(size, align).unwrap();
        }
        let offsets: Vec<u32> = layout.params.iter().map(|param| param.offset).collect();
        assert_eq!(offsets, [0, 8, 16, 20, 32]);
        assert_eq!(layout.bytes, 48);
    }

    #[test]
    fn limits_are_kept() {
        let mut layout = Layout::default();
        assert_eq!(layout.push(PARAM_BYTES_MAX + 1, 1), Err(LayoutError::TooLarge));
        assert_eq!(layout.push(u32::MAX, 1), Err(LayoutError::TooLarge));
        layout.push(PARAM_BYTES_MAX, 4).unwrap();
        assert_eq!(layout.push(1, 1), Err(LayoutError::TooLarge));
        assert_eq!(layout.put(Param { offset: 0, size: 4 }), Err(LayoutError::Overlap));
    }

    #[test]
    fn equal_layouts_are_one() {
        let make = || Layout { params: vec![Param { offset: 0, size: 12 }], bytes: 12 };
        assert!(std::ptr::eq(make().intern(), make().intern()));
        assert!(!std::ptr::eq(make().intern(), Layout::default().intern()));
    }

    #[test]
    fn kernels_are_found_by_name() {
        let mut one = Layout::default();
        one.push(8, 8).unwrap();
        let kernels = Kernels::new([("b".to_owned(), one), ("a".to_owned(), Layout::default())]);
        assert_eq!(kernels.get("b").unwrap().bytes, 8);
        assert_eq!(kernels.get("a").unwrap().bytes, 0);
        assert!(kernels.get("c").is_none());
        assert_eq!(kernels.names().collect::<Vec<_>>(), ["a", "b"]);
    }
}
