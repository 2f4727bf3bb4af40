//! What a case is: an operation, the types it works on, a shape, a limit for the error, and a function that
//! builds its graph on any backend.

use std::collections::HashSet;
use std::fmt::Display;

use anyhow::{Context, Result};
use regex_lite::Regex;

use crate::compare::Limit;
use crate::ffi::Tensor;
use crate::plan::GraphPlan;
use crate::report::Listed;

/// Builds a case's graph and returns its outputs.
pub type Build = Box<dyn for<'c> Fn(&GraphPlan<'c>) -> Vec<Tensor<'c>> + Send + Sync>;

/// An operation or a fused pattern to compute, and how far its results may be off.
pub struct Case {
    /// Operation, as GGML calls it, or the name of a pattern that backends fuse.
    pub op: &'static str,
    /// Names of the operands' types, with commas between them.
    pub types: String,
    /// Shape and parameters.
    pub detail: String,
    /// Largest accepted error of the device's result.
    pub limit: Limit,
    /// Whether it belongs to the short selection.
    pub short: bool,
    /// How often it is computed, from the same inputs; the last result counts. A backend that records
    /// graphs replays one from the third time on.
    pub runs: u32,
    /// Adds the nodes of the case to a plan and returns the outputs.
    pub build: Build,
}

impl Case {
    /// Operation, types and detail, which name the case uniquely.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.op, self.types, self.detail)
    }

    /// The row that `--list` prints for the case.
    pub fn listed(&self) -> Listed {
        Listed {
            case: self.name(),
            op: self.op.to_owned(),
            types: self.types.clone(),
            limit: self.limit.error(),
        }
    }
}

/// A list of cases that is being made. The first case of an operation and types is in the short selection.
#[derive(Default)]
pub struct Cases {
    list: Vec<Case>,
    seen: HashSet<(&'static str, String)>,
}

impl Cases {
    /// Appends a case with this operation, types, detail and limit.
    pub fn add(
        &mut self,
        op: &'static str,
        types: impl Display,
        detail: impl Display,
        limit: Limit,
        build: impl for<'c> Fn(&GraphPlan<'c>) -> Vec<Tensor<'c>> + Send + Sync + 'static,
    ) -> &mut Case {
        let types = types.to_string();
        let short = self.seen.insert((op, types.clone()));
        self.list.push(Case {
            op,
            types,
            detail: detail.to_string(),
            limit,
            short,
            runs: 1,
            build: Box::new(build),
        });
        self.list.last_mut().expect("one was just added")
    }

    /// The cases, in the order in which they were added.
    pub fn into_list(self) -> Vec<Case> {
        self.list
    }
}

/// A choice among the cases.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Excludes cases whose name does not match.
    pub filter: Option<Regex>,
    /// Excludes cases outside the short selection.
    pub short: bool,
}

impl Selection {
    /// By a regular expression for the names. An operation's own name selects that operation alone; a
    /// regular expression may match anywhere.
    pub fn new(filter: Option<&str>, short: bool, all: &[Case]) -> Result<Self> {
        let filter = filter
            .map(|text| {
                let whole = all.iter().any(|case| case.op == text);
                let pattern = if whole { format!("^{text} ") } else { text.to_owned() };
                Regex::new(&pattern).with_context(|| format!("read the filter {text:?}"))
            })
            .transpose()?;
        Ok(Self { filter, short })
    }

    /// Whether the selection includes a case.
    pub fn takes(&self, case: &Case) -> bool {
        (!self.short || case.short) && self.filter.as_ref().is_none_or(|filter| filter.is_match(&case.name()))
    }
}
