//! Definition of a case: an operation with types, shape and error limit, and a function that builds its graph
//! on any backend.

use std::collections::HashSet;
use std::fmt::Display;

use anyhow::{Context, Result};
use regex_lite::Regex;

use crate::compare::Limit;
use crate::ffi::Tensor;
use crate::plan::GraphPlan;
use crate::report::Listed;

/// Function that adds a case's nodes to a plan and returns the outputs.
pub type Build = Box<dyn for<'c> Fn(&GraphPlan<'c>) -> Vec<Tensor<'c>> + Send + Sync>;

/// An operation or a fused pattern to compute, with its error limit.
pub struct Case {
    /// GGML's name of the operation, or the name of a pattern that backends fuse.
    pub op: &'static str,
    /// Names of the operands' types, separated by commas.
    pub types: String,
    /// Shape and parameters of the case, as text.
    pub detail: String,
    /// Largest accepted error of the device's result.
    pub limit: Limit,
    /// Whether the case belongs to the short selection.
    pub short: bool,
    /// Number of times that the graph is computed from the same inputs; the last result counts. A backend
    /// that records graphs replays them from the third time on.
    pub runs: u32,
    /// Function that adds the nodes of the case to a plan and returns the outputs.
    pub build: Build,
}

impl Case {
    /// Returns operation, types and detail, which together name the case uniquely.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.op, self.types, self.detail)
    }

    /// Returns the row that `--list` prints for the case.
    pub fn listed(&self) -> Listed {
        Listed {
            case: self.name(),
            op: self.op.to_owned(),
            types: self.types.clone(),
            limit: self.limit.error(),
        }
    }
}

/// Collects cases. The first case of each operation and types joins the short selection.
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

    /// Returns the cases, in the order in which they were added.
    pub fn into_list(self) -> Vec<Case> {
        self.list
    }
}

/// A filter on the list of cases.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Regular expression that the names of included cases must match.
    pub filter: Option<Regex>,
    /// Whether cases outside the short selection are excluded.
    pub short: bool,
}

impl Selection {
    /// Creates a selection from a regular expression on names. The exact name of an operation selects only
    /// that operation; any other expression may match anywhere.
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

    /// Returns whether the selection includes a case.
    pub fn takes(&self, case: &Case) -> bool {
        (!self.short || case.short) && self.filter.as_ref().is_none_or(|filter| filter.is_match(&case.name()))
    }
}
