//! What stands on the suppression list, and the identity that must be pinned before anything may: hashes and words,
//! never an address.

use std::collections::HashSet;

use jiff::Timestamp;

use super::stored::{Moment, bytes};
use super::{LedgerError, Result};
use crate::identity::DigestType;
use crate::identity::keyring::CheckValue;

/// The keyed hash of a normalised address.
pub type AddressHash = [u8; 32];

/// An entry of the suppression list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    /// Who gets nothing.
    pub address_hash: AddressHash,
    /// Of which type; `None` for every type.
    pub digest_type: Option<DigestType>,
    /// Why.
    pub reason: SuppressionReason,
}

/// An entry as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingSuppression {
    /// Of which type; `None` for every type.
    pub digest_type: Option<DigestType>,
    /// Why.
    pub reason: SuppressionReason,
    /// When it was made, on the database's clock.
    pub added_at: Timestamp,
}

/// A word that says why an address is on the list: `[a-z][a-z0-9_]{0,63}`. A word and not a text, so that an address
/// or a name in the wrong column of a file cannot end in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuppressionReason(String);

impl SuppressionReason {
    /// Reads a reason.
    ///
    /// # Errors
    /// What is expected, without the text that was found.
    pub fn new(text: &str) -> std::result::Result<Self, &'static str> {
        let word = text.len() <= 64
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        word.then(|| Self(text.to_owned()))
            .ok_or("must be one word of lower-case letters, digits and underscores, such as unsubscribed")
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a ledger is for and which stable secret its hashes are made with. Pinned at first use, never changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityPin {
    /// The setting `environment`.
    pub environment: String,
    /// Check value of the keyring's `[stable]` entry.
    pub stable: CheckValue,
}

/// How a scope is stored: a type's name, or nothing for every type.
pub(super) fn scope(digest_type: Option<&DigestType>) -> &str {
    digest_type.map_or("", DigestType::as_str)
}

/// A hash that was found on the list.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct HashRow {
    address_hash: Vec<u8>,
}

/// Which of `hashes` were found, in their order.
pub(super) fn among(hashes: &[AddressHash], found: &[HashRow]) -> Result<Vec<bool>> {
    let found =
        found.iter().map(|row| bytes(&row.address_hash, "address hash")).collect::<Result<HashSet<AddressHash>>>()?;
    Ok(hashes.iter().map(|hash| found.contains(hash)).collect())
}

/// An entry as both databases store it.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct SuppressionRow {
    digest_type: String,
    reason: String,
    added_at: Moment,
}

impl SuppressionRow {
    pub(super) fn standing(self) -> Result<StandingSuppression> {
        let corrupt = |what| LedgerError::Corrupt { what };
        let digest_type = match self.digest_type.as_str() {
            "" => None,
            name => Some(DigestType::new(name).map_err(|_| corrupt("type of a suppression"))?),
        };
        Ok(StandingSuppression {
            digest_type,
            reason: SuppressionReason::new(&self.reason).map_err(|_| corrupt("reason of a suppression"))?,
            added_at: self.added_at.timestamp()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::SuppressionReason;

    #[test]
    fn a_reason_is_one_word_and_never_an_address() {
        for good in ["unsubscribed", "x", "hard_bounce_2"] {
            assert_eq!(SuppressionReason::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "Unsubscribed", "2x", "_x", "a b", "zoe@example.test", "é", &"a".repeat(65)] {
            assert!(SuppressionReason::new(bad).is_err());
        }
    }
}
