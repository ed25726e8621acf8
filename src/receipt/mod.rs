//! What a receipt can be and what may happen to it. Pure: no I/O, no SQL, no clock, no randomness.
//!
//! Six decisions live here and nowhere else: [`verdict()`] (what a request for a claim finds),
//! [`settlement()`] (what an attempt's outcome does to its receipt), [`looked()`] (what a look at the provider does),
//! [`review()`] (what a person's decision does), [`other_version()`] (whom another content version leaves to this one)
//! and [`backoff`]. With [`breaker`] comes what the answers of many attempts say about a destination.

pub mod backoff;
pub mod breaker;
mod lookup;
mod outcome;
mod review;
mod settlement;
mod state;
mod verdict;
mod versions;

pub use lookup::{LOOKS_THAT_FAIL, Looks, Lookup, Sighting, looked};
pub use outcome::{Outcome, RetryAfter};
pub use review::{CONFIRMED, Decision, ReviewRefusal, Reviewed, UnderReview, review};
pub use settlement::{
    Attempt, Capabilities, OnAmbiguous, Policy, Replay, Settlement, barred, destination_changed, lease_end,
    ledger_restored, listed, settlement, uncharged, unsent,
};
pub use state::{EventKind, Reason, State};
pub use verdict::{Standing, Verdict, verdict};
pub use versions::{OtherVersion, other_version};
