//! What a case is, and how a module lists its own.

/// One behaviour of the driver.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Module and function, such as `memory::fills_fill_what_they_should`.
    pub name: &'static str,
    /// Panics if the driver behaves differently. It must be the first to call the driver in its process.
    pub run: fn(),
}

/// Lists functions of a module as cases.
macro_rules! cases {
    ($module:literal: $($function:ident),* $(,)?) => {
        &[$(crate::case::Case { name: concat!($module, "::", stringify!($function)), run: $function }),*]
    };
}
pub(crate) use cases;
