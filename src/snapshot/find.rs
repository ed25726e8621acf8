//! One customer's row of an export, for looking at it. Only that row is checked; nothing is sealed.

use std::path::Path;

use serde::Deserialize;

use super::input::Export;
use super::{BadRow, InputError, Row, RowChecks};
use crate::identity::CustomerId;

/// Why a customer's row cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The export cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The row is there, but it is bad.
    #[error("line {}: {}{}{}", .0.line, .0.field, if .0.field.is_empty() { "" } else { ": " }, .0.reason)]
    Bad(BadRow),
}

#[derive(Deserialize)]
struct Head {
    customer_id: String,
}

/// Reads an export until the row of `customer`; `None` where there is none.
///
/// # Errors
/// An export that cannot be read, or a row that sealing would refuse.
pub fn find_row(path: &Path, checks: &RowChecks<'_>, customer: &CustomerId) -> Result<Option<Row>, FindError> {
    let mut export = Export::open(path)?;
    while let Some(chunk) = export.next_chunk()? {
        for (line, bytes) in chunk.lines() {
            let Some(bytes) = bytes.filter(|bytes| is_of(bytes, customer)) else { continue };
            return match checks.check(bytes, &mut Vec::new()) {
                Ok(row) => Ok(Some(row)),
                Err(fault) => {
                    Err(FindError::Bad(BadRow { line: line.into(), field: fault.field, reason: fault.reason }))
                }
            };
        }
    }
    Ok(None)
}

fn is_of(line: &[u8], customer: &CustomerId) -> bool {
    let text = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let head: Option<Head> = serde_json::from_slice(text).ok();
    head.and_then(|head| CustomerId::new(&head.customer_id).ok()).is_some_and(|found| found == *customer)
}
