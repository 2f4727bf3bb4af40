//! `vgpu-testbed fuzz-engine` with a few programs: what it reports, and that a program's number gives the
//! program again. Differences between engines are looked for by the tests of `vgpu-simt-testing`.

use crate::support::{errors, report_of, testbed};

#[test]
fn programs_of_two_processes() {
    let arguments = ["fuzz-engine", "--json", "--seed", "3", "--programs", "7", "--jobs", "2"];
    let (report, good) = report_of(&mut testbed(&arguments));
    assert!(good, "{report:#}");
    assert_eq!((report["seed"].as_u64(), report["programs"].as_u64()), (Some(3), Some(7)), "{report:#}");
    let engines = report["engines"].as_array().unwrap();
    assert!(engines.len() >= 2, "{report:#}");
    // The first engine runs one of eight programs, and the others all.
    let runs: Vec<_> = engines.iter().map(|engine| engine["programs"].as_u64().unwrap()).collect();
    assert_eq!((runs[0], *runs.last().unwrap()), (1, 7), "{report:#}");
    assert!(report["median"].as_u64().unwrap() >= 100, "{report:#}");
}

#[test]
fn minutes_are_a_time() {
    for minutes in ["inf", "NaN", "-1", "1e300"] {
        let output = testbed(&["fuzz-engine", &format!("--minutes={minutes}")]).output().unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("--minutes"), "{errors}");
    }
}

#[test]
fn a_number_gives_the_program() {
    let print = |case: &str| {
        let output = testbed(&["fuzz-engine", "--seed", "3", "--case", case, "--print"]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(print("5").contains(".visible .entry k("));
    assert_eq!(print("5"), print("5"));
    assert_ne!(print("5"), print("6"));
}
