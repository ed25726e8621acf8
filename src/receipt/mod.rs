//! What a receipt can be and what may happen to it. Pure: no I/O, no SQL, no clock, no randomness.
//!
//! Four decisions live here and nowhere else: [`verdict()`] (what a request for a claim finds),
//! [`settlement()`] (what an attempt's outcome does to its receipt), [`review()`] (what a person's decision does) and
//! [`backoff`].

pub mod backoff;
mod lookup;
mod outcome;
mod review;
mod settlement;
mod state;
mod verdict;

pub use lookup::{Lookup, Sighting};
pub use outcome::{Outcome, RetryAfter};
pub use review::{CONFIRMED, Decision, ReviewRefusal, Reviewed, UnderReview, review};
pub use settlement::{
    Attempt, Capabilities, OnAmbiguous, Policy, Replay, Settlement, barred, destination_changed, lease_end,
    ledger_restored, listed, settlement, unsent,
};
pub use state::{EventKind, Reason, State};
pub use verdict::{Standing, Verdict, verdict};
