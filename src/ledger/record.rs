//! Receipts and their events as people look at them. No SQL.

use jiff::Timestamp;

use crate::identity::{ContentVersion, DigestType, Fingerprint, IsoWeek, ReceiptKey};
use crate::receipt::{EventKind, Reason, Standing, State};

/// A receipt as people look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptRecord {
    /// Its key.
    pub key: ReceiptKey,
    /// Its week.
    pub iso_week: IsoWeek,
    /// Its type.
    pub digest_type: DigestType,
    /// Its version.
    pub content_version: ContentVersion,
    /// What the verdict needs.
    pub standing: Standing,
    /// Why it is in its state.
    pub reason: Option<Reason>,
    /// Another content was presented under its key and nobody has decided about it.
    pub in_conflict: bool,
    /// Attempts spent.
    pub attempts: u32,
    /// The current or last grant.
    pub grant_number: i64,
    /// First claim.
    pub first_claimed_at: Timestamp,
    /// When it was recorded as sent.
    pub sent_at: Option<Timestamp>,
    /// Name of the destination.
    pub destination: String,
    /// The provider's reference.
    pub provider_reference: Option<String>,
    /// The provider's last code, or our class of error.
    pub provider_code: Option<String>,
    /// Id of the key.
    pub key_id: String,
    /// The run that it belongs to.
    pub run_id: String,
    /// The part of that run.
    pub part: u32,
    /// Last change.
    pub updated_at: Timestamp,
}

/// One line of a receipt's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Order of recording.
    pub event_id: i64,
    /// What happened.
    pub kind: EventKind,
    /// When, on the database's clock.
    pub at: Timestamp,
    /// The grant it belongs to.
    pub grant_number: i64,
    /// When the claim that it ends was granted.
    pub claimed_at: Option<Timestamp>,
    /// The state after it.
    pub state: State,
    /// Why.
    pub reason: Option<Reason>,
    /// Attempts after it.
    pub attempts: u32,
    /// The provider's reference.
    pub provider_reference: Option<String>,
    /// The provider's code, or our class of error.
    pub provider_code: Option<String>,
    /// The fingerprint that was presented, of a conflict.
    pub presented: Option<Fingerprint>,
    /// Who, of a review.
    pub actor: Option<String>,
    /// Their note.
    pub note: Option<String>,
}

/// Which receipts to list; all given conditions hold.
#[derive(Debug, Clone, Default)]
pub struct ReceiptFilter {
    /// Of this week.
    pub iso_week: Option<IsoWeek>,
    /// In this state.
    pub state: Option<State>,
    /// With this reason.
    pub reason: Option<Reason>,
    /// Of this run.
    pub run_id: Option<String>,
    /// Only those under whose key another content was presented and nobody has decided about it.
    pub in_conflict: bool,
    /// Only those that wait for a person: held, quarantined, in conflict, failed for a reason of ours, and what no
    /// worker takes up any more because its run is closed.
    pub waits_for_person: bool,
    /// Behind this place in the order (week, key): keyset paging.
    pub after: Option<(IsoWeek, ReceiptKey)>,
    /// At most this many.
    pub limit: u32,
}
