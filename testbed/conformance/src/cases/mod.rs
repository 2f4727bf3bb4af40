//! The cases, by what they are about.

mod callbacks;
mod capture;
mod code;
mod devices;
mod edges;
mod kernels;
mod links;
mod memory;
mod order;
mod pools;
mod products;
mod streams;
mod virtual_memory;

pub use links::CALLER;

use crate::case::Case;

/// Returns the cases in the order of their modules.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let modules = [
        callbacks::CASES,
        capture::CASES,
        code::CASES,
        devices::CASES,
        devices::copies::CASES,
        devices::fills::CASES,
        devices::order::CASES,
        edges::CASES,
        kernels::CASES,
        links::CASES,
        memory::CASES,
        order::CASES,
        pools::CASES,
        products::CASES,
        streams::CASES,
        virtual_memory::CASES,
    ];
    modules.into_iter().flatten()
}

/// Returns the case of a name.
pub fn find(name: &str) -> Option<&'static Case> {
    all().find(|case| case.name == name)
}
