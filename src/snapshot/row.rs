//! One row of a snapshot: its typed members, and how a sealed line becomes one again. Whether a row is
//! acceptable is decided in `checks`.

use std::fmt;

use lettre::Address;
use serde::Deserialize;
use serde_json::Value;

use super::{address, locale};
use crate::identity::CustomerId;

/// A row that passed every check.
#[derive(Clone, PartialEq)]
pub struct Row {
    /// In NFC.
    pub customer_id: CustomerId,
    /// The recipient; the domain in A-labels and lower case.
    pub email: Address,
    /// The recipient's name for the address line.
    pub name: Option<String>,
    /// BCP 47 in canonical form: `EN-gb` reads `en-GB` here, `iw` reads `he`.
    pub locale: Option<String>,
    /// IANA name.
    pub time_zone: Option<String>,
    /// A destination other than the digest type's own.
    pub destination: Option<String>,
    /// An https URL that takes the place of the configured pattern.
    pub unsubscribe_url: Option<String>,
    /// What the template shows.
    pub data: Value,
}

/// The members of a row as they stand in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Members {
    pub(super) customer_id: String,
    pub(super) email: String,
    pub(super) name: Option<String>,
    pub(super) locale: Option<String>,
    pub(super) time_zone: Option<String>,
    pub(super) destination: Option<String>,
    pub(super) unsubscribe_url: Option<String>,
    pub(super) data: Value,
}

impl Row {
    /// Reads a line of a sealed part, with or without its line feed. What sealing checked is trusted and not
    /// checked again; the part's hash vouches for the bytes.
    ///
    /// # Errors
    /// A line that sealing never writes.
    pub fn from_sealed(line: &[u8]) -> Result<Self, RowFault> {
        let foreign = || RowFault::new("", "is not a sealed row of this version");
        let members: Members = serde_json::from_slice(line).map_err(|_| foreign())?;
        let customer_id = CustomerId::new(&members.customer_id).map_err(|_| foreign())?;
        let email = address::parse(&members.email).map_err(|_| foreign())?;
        let locale = members.locale.as_deref().map(|text| locale::canonical(text).ok_or_else(foreign)).transpose()?;
        Ok(Self {
            customer_id,
            email,
            name: members.name,
            locale,
            time_zone: members.time_zone,
            destination: members.destination,
            unsubscribe_url: members.unsubscribe_url,
            data: members.data,
        })
    }
}

/// Rows do not print themselves, so that no log or error can hold one by accident.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Row(…)")
    }
}

/// What is wrong with a row, without the row's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFault {
    /// The member, such as `data.transactions[3].amount`; empty for the line as a whole.
    pub field: String,
    /// What is wrong and what is expected.
    pub reason: String,
}

impl RowFault {
    /// A fault of a member, or of the whole line where `field` is empty. The reason continues a sentence that
    /// begins with the member's name, such as `is empty`.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// A row that is not sealed, and why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BadRow {
    /// Line of the export, from 1; blank lines count as lines.
    pub line: u64,
    /// See [`RowFault::field`].
    pub field: String,
    /// See [`RowFault::reason`].
    pub reason: String,
}

impl BadRow {
    pub(super) fn new(line: u64, fault: RowFault) -> Self {
        Self { line, field: fault.field, reason: fault.reason }
    }
}

/// `line 7: email has no @`.
impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "line {}: {}", self.line, self.reason),
            field => write!(f, "line {}: `{field}` {}", self.line, self.reason),
        }
    }
}
