//! What is asked of and answered by claims and settles. No SQL.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use crate::identity::{Fingerprint, IsoWeek, ReceiptKey};
use crate::receipt::{Attempt, Settlement, Standing, State, Verdict};

/// A destination as receipts refer to it: a name together with the account it pointed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DestinationNumber(pub i32);

/// A receipt as a look finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What the verdict needs.
    pub standing: Standing,
    /// The run that it belongs to.
    pub run_number: i64,
    /// Where its newest attempt went; while one is in doubt, where that one went.
    pub destination: DestinationNumber,
}

/// What a grant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// A first attempt, or another one where nothing is in doubt.
    Send,
    /// A replay or a look, where an earlier attempt is in doubt.
    Reconcile,
}

/// One row's request for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The row's receipt key.
    pub key: ReceiptKey,
    /// The row's fingerprint.
    pub fingerprint: Fingerprint,
    /// The part that the row is in.
    pub part: u32,
}

/// A batch of requests that share everything else.
#[derive(Debug, Clone)]
pub struct ClaimBatch<'a> {
    /// The run; must be open, else every answer is [`ClaimAnswer::RunClosed`].
    pub run_number: i64,
    /// The week of every key.
    pub iso_week: IsoWeek,
    /// The worker, a random number per process.
    pub worker: i64,
    /// Where it would be sent.
    pub destination: DestinationNumber,
    /// How long the claim lasts, on the database's clock.
    pub lease: SignedDuration,
    /// What for.
    pub purpose: Purpose,
    /// The requests; no key twice.
    pub requests: &'a [ClaimRequest],
}

/// What a grant allows and what the attempt needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Rises with every grant of this receipt for ever.
    pub grant_number: i64,
    /// Attempts spent before.
    pub attempts: u32,
    /// The database's clock when it was granted.
    pub claimed_at: Timestamp,
    /// First claim of this receipt; the message's Date.
    pub first_claimed_at: Timestamp,
    /// First attempt that was spent; `None` before one was.
    pub first_attempt_at: Option<Timestamp>,
    /// Set where an earlier attempt may have been accepted.
    pub ambiguous_since: Option<Timestamp>,
    /// Where that attempt went; where nothing is in doubt, the destination that was asked for.
    pub destination: DestinationNumber,
}

impl Grant {
    /// The attempt that this grant allows, or allowed, as the decisions about its outcome see it.
    pub fn attempt(&self, began_at: Timestamp) -> Attempt {
        Attempt {
            attempts: self.attempts,
            began_at,
            first_attempt_at: self.first_attempt_at.unwrap_or(began_at),
            ambiguous_since: self.ambiguous_since,
        }
    }
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// One attempt may be made until the lease ends.
    Granted(Grant),
    /// Not granted, and why; never [`Verdict::Claimable`].
    Refused(Verdict),
    /// The run is not open any more.
    RunClosed,
}

/// The permission to make one attempt. Made from a grant, used up by a settle or a give-back.
#[derive(Debug)]
pub struct Claim {
    /// The receipt.
    pub key: ReceiptKey,
    /// The grant.
    pub grant: Grant,
    /// Its end, counted on our own clock from before the claim was asked for.
    pub lease: Lease,
}

/// The end of a lease on this process's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    ends: Instant,
}

impl Lease {
    /// A lease of `length` that is counted from `before`, an instant before the claim was asked for.
    pub fn counted_from(before: Instant, length: SignedDuration) -> Self {
        Self { ends: before + length.unsigned_abs() }
    }

    /// Whether something that may take as long as `needed` would still end inside the lease.
    pub fn covers(&self, needed: std::time::Duration) -> bool {
        Instant::now() + needed < self.ends
    }
}

/// The end of one claim, as it is to be recorded.
#[derive(Debug, Clone)]
pub struct SettleRequest {
    /// The receipt.
    pub key: ReceiptKey,
    /// Its content. With `part` and `settlement` it restores the receipt of a claim that the ledger lost.
    pub fingerprint: Fingerprint,
    /// The part that the row is in.
    pub part: u32,
    /// The grant that ends.
    pub grant_number: i64,
    /// When it was granted.
    pub claimed_at: Timestamp,
    /// First claim of this receipt.
    pub first_claimed_at: Timestamp,
    /// First attempt that was spent, this one included; `None` where none was.
    pub first_attempt_at: Option<Timestamp>,
    /// Where the attempt went.
    pub destination: DestinationNumber,
    /// What to record.
    pub settlement: Settlement,
}

/// What became of one settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleAnswer {
    /// Recorded, or recorded before by the same settle. A conflict noted under the lease may have turned a state
    /// other than `sent` into `quarantined`.
    Recorded(State),
    /// The grant was no longer the current one; an event remembers what came too late.
    TooLate,
}

/// Another content under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictRecord {
    /// The receipt.
    pub key: ReceiptKey,
    /// The content that was presented.
    pub presented: Fingerprint,
    /// The part of the presenting run that the row is in.
    pub part: u32,
}

/// A claim whose lease has ended without an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedLease {
    /// The receipt.
    pub key: ReceiptKey,
    /// Its content.
    pub fingerprint: Fingerprint,
    /// Its part.
    pub part: u32,
    /// Where it was to be sent.
    pub destination: DestinationNumber,
    /// Name of that destination.
    pub destination_name: String,
    /// The grant whose lease ended.
    pub grant: Grant,
}
