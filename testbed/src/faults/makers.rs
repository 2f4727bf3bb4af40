//! Makers of faults. Each changes the plan of a healthy system, and is found by its name in the catalogue.

mod device;
mod limits;
mod mediator;
mod needs;
mod ollama;
mod rights;
mod service;
mod system;
mod values;

use super::plan::Maker;

/// Returns the maker of the fault with this name, if there is one.
pub fn maker(name: &str) -> Option<Maker> {
    [
        device::MAKERS,
        limits::MAKERS,
        needs::MAKERS,
        ollama::MAKERS,
        rights::MAKERS,
        service::MAKERS,
        system::MAKERS,
        values::MAKERS,
    ]
    .into_iter()
    .flatten()
    .find(|(known, _)| *known == name)
    .map(|(_, maker)| *maker)
}
