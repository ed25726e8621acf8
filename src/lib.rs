//! Counterfoil sends weekly digests and keeps one keyed receipt for each.
//!
//! The way of a row: [`snapshot`] seals the input and reads it back in parts; [`identity`] computes its receipt
//! key and fingerprint; [`ledger`] grants or refuses the claim; [`digest`] renders the message; [`provider`] hands
//! it over; [`receipt`] decides what the outcome means; [`ledger`] settles it. [`run`] is the only place that
//! talks to both a ledger and a provider, and it decides nothing by itself.

pub mod cli;
pub mod config;
pub mod digest;
pub mod identity;
pub mod ledger;
pub mod provider;
pub mod receipt;
pub mod run;
pub mod snapshot;
pub mod telemetry;
