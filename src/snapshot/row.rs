//! One row of a snapshot: the typed members and the canonical bytes it is sealed as.

use lettre::Address;
use serde_json::Value;

use crate::identity::CustomerId;

/// A row that passed every check.
#[derive(Debug, Clone)]
pub struct Row {
    /// In NFC.
    pub customer_id: CustomerId,
    /// The recipient.
    pub email: Address,
    /// The recipient's name for the address line.
    pub name: Option<String>,
    /// BCP 47.
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

/// What is wrong with a row, without the row's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFault {
    /// The member, such as `data.transactions[3].amount`; empty for the line as a whole.
    pub field: String,
    /// What is wrong and what is expected.
    pub reason: String,
}
