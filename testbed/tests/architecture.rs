//! The names in docs/architecture.md are those of the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../docs/architecture.md");
/// Lines that a walk may take.
const STEPS_MOST: usize = 25;

#[test]
fn walks_name_functions_that_there_are_each_once() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut walks = 0;
    for walk in PAGE.split("\n## ").skip(1) {
        let title = walk.lines().next().unwrap();
        let steps: Vec<(&str, &str)> = walk
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split("` | `");
                Some((cells.next()?, cells.next()?.split('`').next()?))
            })
            .collect();
        assert!((5..=STEPS_MOST).contains(&steps.len()), "{title}: {} steps", steps.len());
        let mut seen = BTreeSet::new();
        for step @ (file, function) in steps {
            let source =
                fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            let named =
                ["(", "<", ",", " |"].iter().any(|end| source.contains(&format!("fn {function}{end}")));
            assert!(named, "{title}: {file} has no function {function}");
            assert!(seen.insert(step), "{title}: {file} {function} comes twice");
        }
        walks += 1;
    }
    assert_eq!(walks, 4);
}
