//! Includes all tests of the contract, as one program.

mod address;
mod golden;
mod properties;
mod ranges;
mod registers;
mod v1;
