//! Signature of the code of a template, and the template types that use it.

use super::cache::{Cache, Pair};
use crate::jit::template;
use crate::jit::value::Emit;
use crate::machine::Inst;

/// Emits the code that computes eight lanes of a result from those of up to three operands.
pub(super) type Body = fn(&mut Cache<'_>, &Inst, Pair, [Pair; 3]) -> Emit;
pub(super) type Template = template::Template<Body>;
pub(super) type Action = template::Action<Body>;
pub(super) type Templates = template::Templates<Body>;
