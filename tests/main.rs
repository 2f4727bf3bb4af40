//! Integration tests of the launcher, built as one program.

mod check;
mod hangs;
mod install;
mod service;
mod users;
