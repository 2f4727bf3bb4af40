//! Reports, summed up by operation and types.

use serde::Serialize;
use vgpu_ggml::report::{CaseReport, Outcome};

/// Summary of all cases of an operation with the same types.
#[derive(Debug, PartialEq, Serialize)]
pub struct Row {
    op: String,
    types: String,
    cases: usize,
    passed: usize,
    failed: usize,
    unsupported: usize,
    /// Error of the case whose error is largest relative to its limit, which is in `limit`.
    error: Option<f64>,
    limit: f64,
}

/// Returns the error as a fraction of the limit; infinity if the limit is zero and the error is not.
fn share(error: f64, limit: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / limit }
}

/// Returns one row per operation and types, in the order of their first cases.
pub fn rows(reports: &[CaseReport]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for report in reports {
        let at = rows.iter().position(|row| row.op == report.op && row.types == report.types);
        let at = at.unwrap_or_else(|| {
            rows.push(Row {
                op: report.op.clone(),
                types: report.types.clone(),
                cases: 0,
                passed: 0,
                failed: 0,
                unsupported: 0,
                error: None,
                limit: report.limit,
            });
            rows.len() - 1
        });
        let row = &mut rows[at];
        row.cases += 1;
        match report.outcome {
            Outcome::Passed => row.passed += 1,
            Outcome::Failed => row.failed += 1,
            Outcome::Unsupported => row.unsupported += 1,
        }
        if let Some(error) = report.error
            && row.error.is_none_or(|worst| share(error, report.limit) > share(worst, row.limit))
        {
            row.error = Some(error);
            row.limit = report.limit;
        }
    }
    rows
}

/// Prints the rows, then each failed case, then the totals.
pub fn print(reports: &[CaseReport]) {
    println!(
        "{:<20} {:<18} {:>5} {:>6} {:>6} {:>11}  {:>9} {:>9}",
        "operation", "types", "cases", "passed", "failed", "unsupported", "worst", "limit"
    );
    for row in rows(reports) {
        let error = row.error.map_or_else(|| "-".to_owned(), |error| format!("{error:.1e}"));
        println!(
            "{:<20} {:<18} {:>5} {:>6} {:>6} {:>11}  {error:>9} {:>9.1e}",
            row.op, row.types, row.cases, row.passed, row.failed, row.unsupported, row.limit
        );
    }
    let count = |outcome| reports.iter().filter(|report| report.outcome == outcome).count();
    for report in reports.iter().filter(|report| report.outcome == Outcome::Failed) {
        println!("FAILED {}: {}", report.case, report.why.as_deref().unwrap_or("no reason given"));
    }
    println!(
        "{} cases: {} passed, {} failed, {} unsupported",
        reports.len(),
        count(Outcome::Passed),
        count(Outcome::Failed),
        count(Outcome::Unsupported)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(op: &str, outcome: Outcome, error: Option<f64>, limit: f64) -> CaseReport {
        CaseReport {
            case: op.to_owned(),
            op: op.to_owned(),
            types: "f32".to_owned(),
            outcome,
            error,
            limit,
            why: None,
            ms: None,
        }
    }

    #[test]
    fn the_worst_is_the_largest_against_its_limit() {
        let rows = rows(&[
            report("ADD", Outcome::Passed, Some(1e-8), 1e-7),
            report("MUL", Outcome::Unsupported, None, 1e-7),
            report("ADD", Outcome::Passed, Some(5e-4), 1e-2),
            report("ADD", Outcome::Failed, Some(0.1), 0.0),
            report("ADD", Outcome::Failed, None, 1e-7),
        ]);
        let counts: Vec<_> =
            rows.iter().map(|row| (row.cases, row.passed, row.failed, row.unsupported)).collect();
        assert_eq!(counts, [(4, 2, 2, 0), (1, 0, 0, 1)]);
        assert_eq!((rows[0].error, rows[0].limit), (Some(0.1), 0.0));
        assert_eq!(rows[1].error, None);
    }
}
