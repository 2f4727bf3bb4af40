//! What the test bed's command line and its tests share: devices in a process of their own
//! ([`bed`]), the programs of this workspace ([`programs`]), backends to load ([`backends`]), and
//! libraries that do nothing ([`nothing`]).

pub mod backends;
pub mod bed;
pub mod nothing;
pub mod programs;
