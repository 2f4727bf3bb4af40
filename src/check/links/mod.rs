//! How each link is looked at, a module each: `pub async fn look(context: &mut Context) -> Finding`.

pub mod kernel;
