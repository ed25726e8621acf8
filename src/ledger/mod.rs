//! The ledger's verbs and what each promises; the two databases behind them are `sqlite` and `postgres`.
//!
//! No decision is made here or behind here that a pure function in [`crate::receipt`] could make: a verb's guard
//! stands in its statement, its answer says what the guard found. Rows of a batch are always in key order, so
//! that two batches cannot deadlock. All instants are the database's, plus the test clock's offset.

use std::time::Instant;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use crate::identity::keyring::CheckValue;
use crate::identity::{ContentVersion, DigestType, Fingerprint, IsoWeek, ReceiptKey};
use crate::receipt::{EventKind, Reason, Settlement, Standing, State, Verdict};

mod answers;
mod failure;
mod image;
mod open;
mod postgres;
mod schema;
mod slow_path;
mod sqlite;
mod stored;

pub use open::open;

/// What went wrong with a ledger. Messages hold no receipt's content and no password of the URL.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Out of reach, or it went away.
    #[error("the ledger is out of reach")]
    Unreachable(#[source] sqlx::Error),
    /// It answered with an error that a repetition does not mend.
    #[error("the ledger refused {verb}")]
    Refused {
        /// The verb of this module that was under way.
        verb: &'static str,
        /// The database's error.
        #[source]
        source: sqlx::Error,
    },
    /// The schema is older or newer than this program.
    #[error("the ledger's schema is at version {found}, this program needs {needed}; {hint}")]
    Schema {
        /// Version of the newest migration in the ledger; 0 for an empty database.
        found: i64,
        /// Version of the newest migration in the program.
        needed: i64,
        /// What to do.
        hint: &'static str,
    },
    /// A migration failed.
    #[error("the ledger could not be migrated")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// A stored value that no version of this program writes.
    #[error("the ledger holds an impossible {what}")]
    Corrupt {
        /// Which column or row.
        what: &'static str,
    },
    /// A URL of no known kind.
    #[error("ledger.url must be sqlite:// with a path and nothing behind it, or postgres:// with host and database")]
    Url,
}

/// A result of a verb.
pub type Result<T> = std::result::Result<T, LedgerError>;

/// How a run treats the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is claimed and nothing is sent.
    Observe,
    /// The ledger records and never vetoes.
    Advisory,
    /// Only what is granted is sent.
    Enforce,
}

impl Mode {
    /// The word that the ledger stores and the command line takes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Advisory => "advisory",
            Self::Enforce => "enforce",
        }
    }

    /// The mode of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Observe, Self::Advisory, Self::Enforce].into_iter().find(|mode| mode.as_str() == word)
    }
}

/// A week's key as the ledger has pinned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPin {
    /// The keyring entry's id.
    pub key_id: String,
    /// Its check value.
    pub check: CheckValue,
}

/// What a run is about to rely on; pinned at first use, compared ever after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    /// The setting `environment`.
    pub environment: String,
    /// Check value of the keyring's `[stable]` entry.
    pub stable: CheckValue,
    /// The week that `week_key` is pinned for.
    pub iso_week: IsoWeek,
    /// The week's key.
    pub week_key: KeyPin,
    /// Type and version that `content_hash` is pinned for.
    pub digest_type: DigestType,
    /// See `digest_type`.
    pub content_version: ContentVersion,
    /// Hash of the template bundle and what else shapes a message.
    pub content_hash: [u8; 32],
}

/// What the ledger has pinned so far of the same things; `None` where nothing is pinned yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StandingPins {
    /// See [`Pins::environment`].
    pub environment: Option<String>,
    /// See [`Pins::stable`].
    pub stable: Option<CheckValue>,
    /// See [`Pins::week_key`].
    pub week_key: Option<KeyPin>,
    /// See [`Pins::content_hash`].
    pub content_hash: Option<[u8; 32]>,
}

/// A run as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Derived from snapshot, week, type, version and mode.
    pub run_id: String,
    /// The week.
    pub iso_week: IsoWeek,
    /// The digest's type.
    pub digest_type: DigestType,
    /// The content version.
    pub content_version: ContentVersion,
    /// The mode.
    pub mode: Mode,
    /// Id of the sealed snapshot, 64 hex digits.
    pub snapshot_id: String,
    /// Sealed rows.
    pub rows: u64,
    /// Rows of each part, part 0 first.
    pub part_rows: Vec<u32>,
    /// Rows that were repeated alike in the input.
    pub repeated: u64,
    /// Rows that were set aside.
    pub rejected: u64,
    /// Id of the week's key.
    pub key_id: String,
    /// Hash of the content.
    pub content_hash: [u8; 32],
    /// After this instant no attempt is of use.
    pub deadline_at: Timestamp,
    /// Sends although another version of this week and type has a run.
    pub correction: bool,
}

/// A run as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The number that receipts refer to.
    pub run_number: i64,
    /// What was asked for. `part_rows` is empty here.
    pub new: NewRun,
    /// When it was first started.
    pub opened_at: Timestamp,
    /// When it was closed; `None` while it is open.
    pub closed_at: Option<Timestamp>,
    /// Who closed it, where a person did.
    pub closed_by: Option<String>,
    /// The brake that stopped it last, in words; cleared when it is started again.
    pub brake: Option<String>,
}

/// A destination as receipts refer to it: a name together with the account it pointed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DestinationNumber(pub i32);

/// The rows of a part that have no receipt of this run, by why. Stored when the part is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForeignCounts {
    /// Sent by another run.
    pub duplicate: u64,
    /// Claimed by another run, or waiting there for a lookup.
    pub in_progress: u64,
    /// Retryable in another run.
    pub retryable: u64,
    /// Held in another run.
    pub held: u64,
    /// Failed in another run.
    pub failed: u64,
    /// Suppressed in another run.
    pub suppressed: u64,
    /// In conflict with a receipt of another run, or quarantined there.
    pub quarantined: u64,
}

/// What [`Ledger::take_part`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartGrant {
    /// This part is ours until its lease ends.
    Taken {
        /// Its number.
        part: u32,
    },
    /// Nothing to do now.
    None {
        /// When the next part wants work again: a retry is due or another worker's lease on it ends.
        next_due_at: Option<Timestamp>,
    },
}

/// How a part is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartEnd {
    /// Every row of it has a settled receipt or stands in the counts.
    Done,
    /// Some rows wait; come back then.
    Waiting {
        /// When.
        until: Timestamp,
    },
    /// Not worked through (a stop or a brake): for the next one who asks.
    Open,
}

/// A receipt as a look finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What the verdict needs.
    pub standing: Standing,
    /// The run that it belongs to.
    pub run_number: i64,
    /// Where its last claim was for.
    pub destination: DestinationNumber,
}

/// What a grant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// Receipts and rows of a whole run, by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCounts {
    /// Receipts of this run sent since the given instant, without an earlier doubt.
    pub sent: u64,
    /// Receipts of this run sent since the given instant after an earlier attempt had been in doubt.
    pub reconciled: u64,
    /// Receipts of this run sent earlier.
    pub sent_before: u64,
    /// Live claims, and receipts in doubt that will be tried or looked up.
    pub in_progress: u64,
    /// Waiting for another attempt, with nothing in doubt.
    pub retryable: u64,
    /// Waiting for a person.
    pub held: u64,
    /// Failed because the provider refused them.
    pub failed_rejected: u64,
    /// Failed for another reason.
    pub failed_other: u64,
    /// Quarantined receipts of this run.
    pub quarantined: u64,
    /// Suppressed.
    pub suppressed: u64,
    /// Open conflicts of this run's rows with receipts of other runs.
    pub conflicts: u64,
    /// Rows without a receipt of this run, as the parts counted them. Conflicts are not in here.
    pub foreign: ForeignCounts,
    /// Attempts spent in this run, for the brake on rejections.
    pub attempts: u64,
}

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
    /// Behind this place in the order (week, key): keyset paging.
    pub after: Option<(IsoWeek, ReceiptKey)>,
    /// At most this many.
    pub limit: u32,
}

/// Permission of a destination's shared rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The first of the reserved sends may start this long from now; the others follow at the rate.
    pub wait: SignedDuration,
}

/// A rate that all workers share: a token bucket in the form of GCRA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Time from one send to the next.
    pub interval: SignedDuration,
    /// How many may start at once after a pause.
    pub burst: u32,
}

/// The verbs. Every implementation passes the same contract tests.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Brings the schema up to date. Safe to call from several processes at once. A ledger that is newer than
    /// the program is refused.
    async fn migrate(&self) -> Result<()>;

    /// Refuses a schema that is older or newer than the program.
    async fn check_schema(&self) -> Result<()>;

    /// The database's clock, with the test clock's offset.
    async fn now(&self) -> Result<Timestamp>;

    /// What is pinned of the same environment, week, type and version. Reads only.
    async fn pins(
        &self,
        week: IsoWeek,
        digest_type: &DigestType,
        content_version: &ContentVersion,
    ) -> Result<StandingPins>;

    /// Pins whatever of `pins` is not pinned yet and answers what stands afterwards; never changes a pin.
    async fn pin(&self, pins: &Pins) -> Result<StandingPins>;

    /// Every pinned week with its key, latest week first.
    async fn key_pins(&self) -> Result<Vec<(IsoWeek, KeyPin)>>;

    /// Inserts the run and its parts in one transaction, or finds the one with the same id, and counts the trigger.
    async fn open_run(&self, run: &NewRun) -> Result<Run>;

    /// The run with this id.
    async fn run(&self, run_id: &str) -> Result<Option<Run>>;

    /// Every open run that claims (advisory and enforce), oldest first.
    async fn open_runs(&self) -> Result<Vec<Run>>;

    /// Every claiming run of a week and type, oldest first.
    async fn runs_of_week(&self, week: IsoWeek, digest_type: &DigestType) -> Result<Vec<Run>>;

    /// The enforced run of a type that was opened last.
    async fn last_enforced_run(&self, digest_type: &DigestType) -> Result<Option<Run>>;

    /// Every enforced run that used a snapshot.
    async fn runs_of_snapshot(&self, snapshot_id: &str) -> Result<Vec<Run>>;

    /// Remembers which brake stopped a run, or that none does.
    async fn set_brake(&self, run_number: i64, brake: Option<&str>) -> Result<()>;

    /// Closes the run if every part is done and none of its receipts is claimed or retryable; parts that were
    /// called done although one of their receipts still waits are opened again. Answers whether it is closed.
    async fn close_finished_run(&self, run: &Run) -> Result<bool>;

    /// Leases the lowest part of an open run that nobody holds and that is open or due again.
    async fn take_part(&self, run_number: i64, worker: i64, lease: SignedDuration) -> Result<PartGrant>;

    /// Prolongs our lease of a part; `false` where it is not ours any more.
    async fn renew_part(&self, run_number: i64, part: u32, worker: i64, lease: SignedDuration) -> Result<bool>;

    /// Lets a part go and replaces its counts. Without effect where it is not ours any more.
    async fn end_part(
        &self,
        run_number: i64,
        part: u32,
        worker: i64,
        end: PartEnd,
        counts: &ForeignCounts,
    ) -> Result<()>;

    /// The number of a destination's name and account, made at first use.
    async fn destination(&self, name: &str, identity: &[u8; 32]) -> Result<DestinationNumber>;

    /// What stands under each key, in the order of `keys`. Reads only.
    async fn look(&self, week: IsoWeek, keys: &[ReceiptKey]) -> Result<Vec<Option<Found>>>;

    /// Claims a batch in one statement; the answers are in the order of the requests. A claim whose commit was
    /// not acknowledged is read back by worker and grant.
    async fn claim(&self, batch: &ClaimBatch<'_>) -> Result<Vec<ClaimAnswer>>;

    /// Records a batch of ends with their events; the answers are in the order of the requests. A settle whose
    /// grant is not the current one changes nothing but the events, except that a late acceptance under the same
    /// grant makes a receipt `sent`. Repeating a settle is a success.
    async fn settle(&self, run_number: i64, week: IsoWeek, requests: &[SettleRequest]) -> Result<Vec<SettleAnswer>>;

    /// The claims among `keys` whose lease has ended, with what is needed to declare them ambiguous.
    async fn ended_leases(&self, week: IsoWeek, keys: &[ReceiptKey]) -> Result<Vec<EndedLease>>;

    /// Declares claims ambiguous whose lease has ended on the database's clock and whose grant is still the
    /// current one. Answers how many that were.
    async fn end_leases(&self, run_number: i64, week: IsoWeek, requests: &[SettleRequest]) -> Result<u64>;

    /// Records conflicts with both fingerprints. A receipt becomes `quarantined` unless it is sent, claimed or in
    /// doubt; a claimed one will when it is settled otherwise than sent. Repeating changes nothing but a count.
    async fn record_conflicts(&self, run_number: i64, week: IsoWeek, conflicts: &[ConflictRecord]) -> Result<()>;

    /// What became of a run's rows; `since` splits what was sent now from what was sent before.
    async fn run_counts(&self, run: &Run, since: Timestamp) -> Result<RunCounts>;

    /// The next instant at which something of an open run is due.
    async fn next_due_at(&self, run_number: i64) -> Result<Option<Timestamp>>;

    /// The receipt of a key, in any week.
    async fn receipt(&self, key: &ReceiptKey) -> Result<Option<ReceiptRecord>>;

    /// The events of a receipt, oldest first.
    async fn events(&self, week: IsoWeek, key: &ReceiptKey) -> Result<Vec<EventRecord>>;

    /// Receipts by filter, in the order (week, key).
    async fn receipts(&self, filter: &ReceiptFilter) -> Result<Vec<ReceiptRecord>>;

    /// Takes `count` sends of a destination's shared rate.
    async fn reserve(&self, destination: &str, count: u32, rate: Rate) -> Result<Reservation>;

    /// Pauses a destination for every worker until then; never shortens a pause.
    async fn pause(&self, destination: &str, until: Timestamp) -> Result<()>;

    /// Until when a destination is paused.
    async fn paused_until(&self, destination: &str) -> Result<Option<Timestamp>>;
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
