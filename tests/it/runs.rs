//! Whole runs of the built program: nobody gets a digest twice or none, every row is counted once, and every run can
//! be run again, whatever happened to the one before.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

mod buckets;
mod counts;
mod crashes;
mod faults;
mod guards;
mod joined;
mod lookups;
mod outages;
mod over_http;
mod pace;
mod place;
mod remembered;
mod restored;
mod versions;
mod whole;
