//! Counterfoil sends weekly digests and keeps one keyed receipt for each.
//!
//! The way of a row: [`snapshot`] seals the input and reads it back in parts; [`identity`] computes its receipt
//! key and fingerprint; [`ledger`] grants or refuses the claim; [`digest`] renders the message; [`provider`] hands
//! it over; [`receipt`] decides what the outcome means; [`ledger`] settles it. [`run`] is the only place that
//! talks to both a ledger and a provider, and it decides nothing by itself.
//!
//! What always holds, and the test that guards it:
//!
//! 1. A receipt key depends on customer, week, type and version alone (`identity::the_published_vectors_hold`).
//! 2. The fingerprint is compared first, in every state (`receipt::verdict::tests`).
//! 3. Of any number of claimers of one key exactly one is granted (`ledger_contract`, on both ledgers).
//! 4. An attempt that may have been accepted is never forgotten; only acceptance, an absence that the provider
//!    has confirmed, or a person ends the doubt (`model`).
//! 5. A process killed at any moment costs nobody a digest and gives nobody two, where the provider replays
//!    (`runs::whole`).
//! 6. Every sealed row is in exactly one outcome (`runs::counts`).
//! 7. Of two content versions of a week a customer gets one, unless somebody asks for a correction (`runs::versions`).
//! 8. No customer's id, address, name or content is in the ledger, a log or an error (`bad_data`, `suppression`).

pub mod cli;
pub mod config;
pub mod digest;
pub mod identity;
pub mod ledger;
pub mod provider;
pub mod receipt;
pub mod rehearsal;
pub mod run;
pub mod snapshot;
pub mod telemetry;
