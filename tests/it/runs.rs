//! Whole runs of the built program: nobody gets a digest twice or none, every row is counted once, and every run can
//! be run again, whatever happened to the one before.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

mod counts;
mod crashes;
mod faults;
mod guards;
mod outages;
mod place;
mod whole;
