//! What assembles a step, and the forms that templates have here.

use super::cache::{Cache, Pair};
use crate::jit::template;
use crate::jit::value::Emit;
use crate::machine::Inst;

/// Computes eight lanes of a result from those of up to three operands.
pub(super) type Body = fn(&mut Cache<'_>, &Inst, Pair, [Pair; 3]) -> Emit;
pub(super) type Template = template::Template<Body>;
pub(super) type Entry = template::Entry<Body>;
pub(super) type Table = template::Table<Body>;
