//! Every integration test, in one binary so that linking stays short.

mod bad_rows;
mod cli;
mod databases;
mod identity;
mod ledger_contract;
mod messages;
mod runs;
mod smtp;
mod tidy;
