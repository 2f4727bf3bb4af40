//! All tests of the launcher, as one program.

mod check;
mod hangs;
mod install;
mod service;
mod users;
