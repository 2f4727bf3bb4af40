//! Runs a case on two backends from the same inputs, and compares the results.

use std::time::Instant;

use crate::case::Case;
use crate::compare::{Values, Verdict, compare};
use crate::ffi::{Arena, Backend, Builder, FfiError, Ggml, Tensor};
use crate::plan::{GraphPlan, Input};
use crate::report::{CaseReport, Outcome};

/// A backend, and the seed of the inputs that it is given.
pub struct Side<'a> {
    /// The backend that computes.
    pub backend: &'a Backend,
    /// Seed of the inputs' random values.
    pub seed: u64,
}

/// Outputs of one backend for a case.
struct Results {
    /// Row length of each output, with its values.
    outputs: Vec<(usize, Values)>,
    /// Indices of overwritten guards among the inputs.
    broken_guards: Vec<usize>,
    ms: f64,
}

/// A graph with its inputs and outputs, before tensors are allocated.
type Built<'c> = (Builder<'c>, Vec<Input<'c>>, Vec<Tensor<'c>>);

fn build<'c>(case: &Case, arena: &'c mut Arena) -> Built<'c> {
    let plan = GraphPlan::new(arena.build());
    let outputs = (case.build)(&plan);
    let (builder, inputs) = plan.finish();
    (builder, inputs, outputs)
}

fn compute(ggml: &Ggml, case: &Case, side: &Side<'_>, built: Built<'_>) -> Result<Results, FfiError> {
    let (builder, inputs, outputs) = built;
    let placed = builder.place(side.backend, &outputs)?;
    let name = case.name();
    let data: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| input.leaf.bytes(ggml, side.seed, &name, index))
        .collect();
    let mut start = Instant::now();
    for _ in 0..case.runs {
        for (input, bytes) in inputs.iter().zip(&data) {
            placed.set(input.tensor, bytes)?;
        }
        start = Instant::now();
        placed.compute()?;
    }
    let outputs: Vec<_> = outputs
        .iter()
        .map(|output| {
            let shape = output.shape();
            let row = shape.ne[0].unsigned_abs() as usize;
            Ok((row, Values::read(ggml, shape, &placed.get(*output)?)))
        })
        .collect::<Result<_, FfiError>>()?;
    // A device may still compute after the call returns; reading its results waits for it.
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let mut broken_guards = Vec::new();
    for (index, input) in inputs.iter().enumerate().filter(|(_, input)| input.guard) {
        if placed.get(input.tensor)? != data[index] {
            broken_guards.push(index);
        }
    }
    Ok(Results { outputs, broken_guards, ms })
}

/// Runs a case on both backends. The report covers every failure except one that ends the process.
pub fn examine(ggml: &'static Ggml, case: &Case, reference: &Side<'_>, device: &Side<'_>) -> CaseReport {
    let mut report = CaseReport {
        case: case.name(),
        op: case.op.to_owned(),
        types: case.types.clone(),
        outcome: Outcome::Failed,
        error: None,
        limit: case.limit.error(),
        why: None,
        ms: None,
    };
    match judge(ggml, case, reference, device) {
        Ok(Judged::Unsupported(why)) => {
            report.outcome = Outcome::Unsupported;
            report.why = Some(why);
        }
        Ok(Judged::Compared { verdict, ms }) => {
            report.outcome = if verdict.wrong.is_none() { Outcome::Passed } else { Outcome::Failed };
            report.error = verdict.error.is_finite().then_some(verdict.error);
            report.why = verdict.wrong;
            report.ms = Some(ms);
        }
        Err(error) => report.why = Some(error.to_string()),
    }
    report
}

enum Judged {
    Unsupported(String),
    Compared { verdict: Verdict, ms: f64 },
}

fn judge(
    ggml: &'static Ggml,
    case: &Case,
    reference: &Side<'_>,
    device: &Side<'_>,
) -> Result<Judged, FfiError> {
    let (mut one, mut other) = (Arena::new(ggml)?, Arena::new(ggml)?);
    let (on_reference, on_device) = (build(case, &mut one), build(case, &mut other));
    for (who, side, built) in [("the device", device, &on_device), ("the CPU", reference, &on_reference)] {
        let refused = built.0.refused_by(side.backend);
        if !refused.is_empty() {
            return Ok(Judged::Unsupported(format!("{who} refuses {}", refused.join(", "))));
        }
    }
    let expected = compute(ggml, case, reference, on_reference)?;
    let got = compute(ggml, case, device, on_device)?;
    let mut verdict = Verdict { error: 0.0, wrong: None };
    let pairs = expected.outputs.into_iter().zip(got.outputs);
    for (index, ((row, expected), (_, got))) in pairs.enumerate() {
        let of_one = compare(case.limit, row, expected, got);
        verdict.error = verdict.error.max(of_one.error);
        if let (None, Some(wrong)) = (&verdict.wrong, of_one.wrong) {
            verdict.wrong = Some(if index == 0 { wrong } else { format!("output {index}: {wrong}") });
        }
    }
    if !got.broken_guards.is_empty() {
        let wrong = format!("stored beside a tensor: the guards {:?} changed", got.broken_guards);
        verdict.wrong = Some(match verdict.wrong {
            Some(other) => format!("{wrong}; {other}"),
            None => wrong,
        });
    }
    Ok(Judged::Compared { verdict, ms: got.ms })
}
