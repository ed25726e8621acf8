//! Every integration test, in one binary so that linking stays short.
// A test may fail by panicking; the functions that tests share are not recognised as tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stderr
)]

mod bad_data;
mod bad_rows;
mod cli;
mod databases;
mod http;
mod identity;
mod ledger_contract;
mod messages;
mod model;
mod review;
mod runs;
mod smtp;
mod suppression;
mod tidy;
