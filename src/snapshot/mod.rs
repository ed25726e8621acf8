//! The sealed, immutable input of a run: reading an export, checking every row, sealing it into the store as
//! numbered parts, and reading parts back. Nothing here claims, renders or sends.

mod row;
mod store;

pub use row::{Row, RowFault};
pub use store::{Manifest, Store, StoreError};

/// Rows of a part, except the last one's.
pub const PART_ROWS: usize = 1_000;
