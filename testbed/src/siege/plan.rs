//! Who is hostile in which round.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Classes that use CUDA alone, so that any device has them; as `vgpu-standin siege hostile` names them.
pub const CUDA: [&str; 16] = [
    "endless-grid",
    "endless-loop",
    "nanosleep",
    "products",
    "copies",
    "endless-graph",
    "registers",
    "slots",
    "held-stream",
    "allocations",
    "local-memory",
    "cooperative",
    "handles",
    "printf",
    "killed",
    "exits",
];
/// The class that writes messages of its own, for devices of version 2.
pub const MESSAGES: &str = "messages";
/// Classes that attack a mediator's socket, as `vgpu-standin siege socket` names them.
pub const SOCKET: [&str; 3] = ["owners", "idle", "calls"];

/// What runs in a round.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Classes of hostile programs.
    pub hostile: Vec<&'static str>,
    /// How many good programs.
    pub good: usize,
    /// KiB of a good program's upload.
    pub kib: usize,
    /// For how many seconds they run side by side.
    pub seconds: f64,
    /// Seed of the bytes that good programs upload.
    pub seed: u64,
}

/// Gives out classes in an order drawn at random, all of them before any comes again.
#[derive(Debug)]
pub struct Turns {
    classes: Vec<&'static str>,
    left: Vec<&'static str>,
}

impl Turns {
    /// Turns of these classes.
    pub const fn new(classes: Vec<&'static str>) -> Self {
        Self { classes, left: Vec::new() }
    }

    /// Returns the next `count` classes.
    pub fn next(&mut self, count: usize, rng: &mut StdRng) -> Vec<&'static str> {
        (0..count)
            .filter_map(|_| {
                if self.left.is_empty() {
                    self.left.clone_from(&self.classes);
                    self.left.shuffle(rng);
                }
                self.left.pop()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_class_has_its_turn_before_any_comes_again() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut turns = Turns::new(CUDA.to_vec());
        let mut first: Vec<_> = (0..4).flat_map(|_| turns.next(4, &mut rng)).collect();
        first.sort_unstable();
        let mut all = CUDA.to_vec();
        all.sort_unstable();
        assert_eq!(first, all);
        assert_eq!(turns.next(3, &mut rng).len(), 3);
    }
}
