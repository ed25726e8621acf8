//! The sealed, immutable input of a run: reading an export, checking every row, sealing it into the store as
//! numbered parts, and reading parts back. Nothing here claims, renders or sends.
//!
//! The way of a row: `input` cuts the export into lines; `pipeline` spreads them over threads; [`RowChecks`] turns
//! a line into canonical JSON or a fault; `seen` remembers hashes of customers to find repeats; `staging` writes the
//! parts where nobody looks for snapshots; [`Store`] puts them in their place. [`seal()`] is all of that.
//!
//! Everything here blocks; asynchronous callers wrap it in `spawn_blocking`.

mod address;
mod bucket;
mod checks;
mod directory;
mod disk;
mod find;
mod input;
mod locale;
mod location;
mod manifest;
mod markers;
mod pipeline;
mod rejects;
mod row;
mod seal;
mod seen;
mod staging;
mod store;

pub use address::NormalAddress;
pub use checks::{ContentCheck, RowChecks};
pub use find::{FindError, find_row};
pub use input::{InputError, MAX_LINE_BYTES};
pub use location::{BucketLocation, StoreLocation};
pub use manifest::{Manifest, lines};
pub use markers::{Mark, Marker, MarkerPlace};
pub use row::{BadRow, Row, RowFault};
pub use seal::{BadRows, OnBadRow, SealError, SealOptions, Sealed, seal};
pub use store::{Store, StoreError};

/// Rows of a part, except the last one's.
pub const PART_ROWS: usize = 1_000;
