//! A map with ordered keys, kept as a sorted vector. The numbers that a guest assigns ascend, so they are
//! appended. Addresses come in any order, but insertions of addresses are rare.

/// Key-value pairs, sorted by key.
#[derive(Debug)]
pub(super) struct Numbered<N, T>(Vec<(N, T)>);

impl<N: Copy + Ord, T> Numbered<N, T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    fn find(&self, number: N) -> Result<usize, usize> {
        self.0.binary_search_by_key(&number, |entry| entry.0)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, number: N) -> Option<&T> {
        self.find(number).ok().map(|at| &self.0[at].1)
    }

    pub(super) fn get_mut(&mut self, number: N) -> Option<&mut T> {
        self.find(number).ok().map(|at| &mut self.0[at].1)
    }

    /// Inserts a value, or replaces the value with the same key.
    pub(super) fn insert(&mut self, number: N, thing: T) {
        match self.find(number) {
            Ok(at) => self.0[at].1 = thing,
            Err(at) => self.0.insert(at, (number, thing)),
        }
    }

    pub(super) fn remove(&mut self, number: N) -> Option<T> {
        self.find(number).ok().map(|at| self.0.remove(at).1)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.0.retain(|(_, thing)| keep(thing));
    }

    /// Returns the entry with the greatest key that is at most `number`.
    pub(super) fn below(&self, number: N) -> Option<&(N, T)> {
        self.0[..self.0.partition_point(|entry| entry.0 <= number)].last()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(N, T)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_whatever_order_they_came() {
        let mut things = Numbered::new();
        for number in [5, 1, 9, 1] {
            things.insert(number, number * 10);
        }
        assert_eq!((things.len(), things.get(5), things.get(2)), (3, Some(&50), None));
        assert_eq!(
            (things.below(0), things.below(8), things.below(9)),
            (None, Some(&(5, 50)), Some(&(9, 90)))
        );
        *things.get_mut(9).unwrap() = 7;
        assert_eq!((things.remove(9), things.remove(9)), (Some(7), None));
        things.retain(|thing| *thing != 10);
        assert_eq!(things.iter().collect::<Vec<_>>(), [&(5, 50)]);
    }
}
