//! Choice of the hostile programs of each round.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Classes of hostile programs that only use CUDA and so run on any device, as `vgpu-standin siege hostile`
/// names them.
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
/// Class of hostile programs that write messages themselves, for devices of version 2.
pub const MESSAGES: &str = "messages";
/// Classes of hostile programs that attack a mediator's socket, as `vgpu-standin siege socket` names them.
pub const SOCKET: [&str; 3] = ["owners", "idle", "calls"];

/// Programs of a round and their parameters.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Classes of the hostile programs.
    pub hostile: Vec<&'static str>,
    /// Number of good programs.
    pub good: usize,
    /// Size in KiB of a good program's upload.
    pub kib: usize,
    /// Seconds for which the programs run concurrently.
    pub seconds: f64,
    /// Seed of the bytes that good programs upload.
    pub seed: u64,
}

/// Returns classes in random order, each once before any is repeated.
#[derive(Debug)]
pub struct Turns {
    classes: Vec<&'static str>,
    left: Vec<&'static str>,
}

impl Turns {
    /// Creates the turns of these classes.
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
