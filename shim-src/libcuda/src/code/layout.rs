//! Layout of a kernel's parameters in its parameter buffer. Many kernels share a layout, and each launch
//! reads one, so each layout is stored once and never freed.

use std::collections::HashSet;

pub use vgpu_image::layout::Layout;

use crate::sync::Mutex;

/// Returns the stored layout that is equal to this one, and stores it if there is none.
pub fn intern(layout: Layout) -> &'static Layout {
    static LAYOUTS: Mutex<Option<HashSet<&'static Layout>>> = Mutex::new(None);
    let mut layouts = LAYOUTS.lock();
    let layouts = layouts.get_or_insert_with(HashSet::new);
    if let Some(known) = layouts.get(&layout) {
        return known;
    }
    let kept: &'static Layout = Box::leak(Box::new(layout));
    layouts.insert(kept);
    kept
}

/// The kernels of an image, by name.
#[derive(Clone, Debug, Default)]
pub struct Kernels(Vec<(Box<str>, &'static Layout)>);

impl Kernels {
    /// Builds the list from names and layouts.
    pub fn new(kernels: impl IntoIterator<Item = (String, Layout)>) -> Self {
        let mut list: Vec<(Box<str>, &'static Layout)> =
            kernels.into_iter().map(|(name, layout)| (name.into_boxed_str(), intern(layout))).collect();
        list.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        list.dedup_by(|a, b| a.0 == b.0);
        Self(list)
    }

    /// Returns the layout of a kernel's parameters, or `None` for an unknown name.
    pub fn get(&self, name: &str) -> Option<&'static Layout> {
        let index = self.0.binary_search_by(|kernel| (*kernel.0).cmp(name)).ok()?;
        Some(self.0[index].1)
    }

    /// Returns the mangled names of all kernels.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|kernel| &*kernel.0)
    }
}

#[cfg(test)]
mod tests {
    use vgpu_image::layout::Param;

    use super::*;

    #[test]
    fn equal_layouts_are_one() {
        let make = || Layout { params: vec![Param { offset: 0, size: 12 }], bytes: 12 };
        assert!(std::ptr::eq(intern(make()), intern(make())));
        assert!(!std::ptr::eq(intern(make()), intern(Layout::default())));
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
