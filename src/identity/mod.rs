//! Who a digest is for and what proves it: identity, receipt key, fingerprint.
//!
//! Pure. There is exactly one way to build a receipt key: [`Identity::canonical_text`] through
//! [`WeekKey::receipt_key`](keyring::WeekKey::receipt_key). Nothing about an attempt (time, worker,
//! try, random id) is part of either.

pub mod canonical_json;
mod fields;
pub mod keyring;
mod receipt_key;
mod week;

pub use fields::{ContentVersion, CustomerId, DigestType, FieldError};
pub use receipt_key::{Fingerprint, ReceiptKey};
pub use week::{IsoWeek, WeekError, WeekSelector};

/// The four fields that make a digest one and the same digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The customer, in NFC.
    pub customer_id: &'a CustomerId,
    /// The ISO week that the digest is about.
    pub iso_week: IsoWeek,
    /// The kind of digest.
    pub digest_type: &'a DigestType,
    /// The version of its content.
    pub content_version: &'a ContentVersion,
}

impl Identity<'_> {
    /// `customer_id|iso_week|digest_type|content_version`, with backslash and pipe of the customer id
    /// escaped by a backslash, so that no two identities share a text.
    pub fn canonical_text(&self) -> String {
        format!("{}|{}|{}|{}", self.customer_id.escaped(), self.iso_week, self.digest_type, self.content_version)
    }
}

/// Reads exactly `N` bytes of hex digits of either case; anything else is `None`.
pub(crate) fn hex_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16).and_then(|value| u8::try_from(value).ok());
        if let [high, low] = *pair {
            *byte = digit(high)? << 4 | digit(low)?;
        }
    }
    Some(bytes)
}

/// Lower-case hex digits of any bytes.
pub(crate) fn hex_text(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
