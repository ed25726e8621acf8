//! The ledger's verbs and what each promises; the two databases behind them are `sqlite` and `postgres`.
//!
//! No decision is made here or behind here that a pure function in [`crate::receipt`] could make: a verb's guard
//! stands in its statement, its answer says what the guard found. Rows of a batch are always in key order, so
//! that two batches cannot deadlock. All instants are the database's, plus the test clock's offset.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use crate::identity::{ContentVersion, DigestType, IsoWeek, ReceiptKey};
use crate::receipt::Looks;

mod answers;
mod claim;
mod failure;
mod image;
mod open;
mod postgres;
mod record;
mod review;
mod run;
mod schema;
mod slow_path;
mod sqlite;
mod stored;
mod suppression;
mod trust;
mod versions;

pub use claim::{
    Claim, ClaimAnswer, ClaimBatch, ClaimRequest, ConflictRecord, DestinationNumber, EndedLease, Found, Grant, Lease,
    Purpose, SettleAnswer, SettleRequest,
};
pub use open::open;
pub use record::{EventRecord, ReceiptFilter, ReceiptRecord};
pub use review::{Review, ReviewAnswer, RunClosing};
pub use run::{ForeignCounts, KeyPin, Mode, NewRun, Opening, PartEnd, PartGrant, Pins, Run, RunCounts, StandingPins};
pub use suppression::{AddressHash, IdentityPin, StandingSuppression, Suppression, SuppressionReason};
pub use trust::{DatabaseMark, PartTrust, RunTrust};

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

/// Permission of a destination's shared rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The first of the reserved sends may start this long from now; the others follow at the rate.
    pub wait: SignedDuration,
}

/// What keeps workers from a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// Until when it is paused; `None` where it is not, or not any more.
    pub paused_until: Option<Timestamp>,
    /// Its breaker, while that is open.
    pub breaker: Option<OpenBreaker>,
}

/// A destination's breaker while it is open: nothing goes there but probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenBreaker {
    /// Since when.
    pub opened_at: Timestamp,
    /// When the next probe may go out.
    pub probe_at: Timestamp,
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

    /// What the ledger is for and which stable secret its hashes are made with, once that is pinned. Reads only.
    async fn pinned_identity(&self) -> Result<Option<IdentityPin>>;

    /// Pins environment and stable secret where they are not pinned yet and answers what stands afterwards; never
    /// changes a pin.
    async fn pin_identity(&self, pin: &IdentityPin) -> Result<IdentityPin>;

    /// Puts entries on the suppression list, in one transaction. One that stands there already is left as it is, with
    /// its reason and date. Answers how many are new; after a lost connection those of the first try count as old.
    /// The caller has pinned the secret that the hashes are made with.
    async fn suppress(&self, entries: &[Suppression]) -> Result<u64>;

    /// Takes the entries of one type off the list, or with `None` every entry of these addresses, whatever its scope.
    /// Answers how many entries that were.
    async fn unsuppress(&self, hashes: &[AddressHash], digest_type: Option<&DigestType>) -> Result<u64>;

    /// Which of these addresses get nothing of a type, because of an entry for it or for every type; in the order of
    /// `hashes`. Reads only, one probe of the primary key for each.
    async fn suppressed(&self, hashes: &[AddressHash], digest_type: &DigestType) -> Result<Vec<bool>>;

    /// Every entry of one address, that for every type first.
    async fn suppressions(&self, hash: &AddressHash) -> Result<Vec<StandingSuppression>>;

    /// Inserts the run and its parts in one transaction, or finds the one with the same id and counts the trigger. A
    /// new one is only inserted where [`NewRun::in_the_way`] names no run of the week; of several processes that ask
    /// at once, each sees what the one before it has opened.
    async fn open_run(&self, run: &NewRun) -> Result<Opening>;

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

    /// How far a run may rely on what the ledger does not know; of one part, or of all. Reads only.
    async fn trust(&self, run_number: i64, part: Option<u32>) -> Result<RunTrust>;

    /// Counts a visit to a run and answers its number; its marker is written only after that. One whose answer is lost
    /// may be counted twice.
    async fn visit(&self, run_number: i64) -> Result<u32>;

    /// Remembers that the marker of a part is about to be written; claims in it begin only after that.
    async fn mark_part(&self, run_number: i64, part: u32) -> Result<()>;

    /// Remembers that rows of these parts that have no receipt may have been sent, at the instants given at the
    /// earliest; parts that are done are left out. The database that answers, and so many
    /// visits, are known to the run from now on. Answers how many parts that were.
    async fn doubt_parts(&self, run_number: i64, doubts: &[(u32, Timestamp)], visits: u32) -> Result<u64>;

    /// Every row of a part in doubt has a receipt now.
    async fn doubt_entered(&self, run_number: i64, part: u32) -> Result<()>;

    /// Records that a run's owner takes what the ledger does not know for never sent: no part is in doubt any more,
    /// those of `begun` count as marked, and the database that answers and so many visits are known to the run.
    async fn accept_loss(&self, run_number: i64, begun: &[u32], visits: u32) -> Result<()>;

    /// The number of a destination's name and account, made at first use.
    async fn destination(&self, name: &str, identity: &[u8; 32]) -> Result<DestinationNumber>;

    /// What stands under each key, in the order of `keys`. Reads only.
    async fn look(&self, week: IsoWeek, keys: &[ReceiptKey]) -> Result<Vec<Option<Found>>>;

    /// What the looks at the provider have said about each key since its newest attempt, in the order of `keys`: counted
    /// from its events by [`Looks::after`]. Reads only; who holds the key's claim is told what nobody else can change.
    async fn looks(&self, week: IsoWeek, keys: &[ReceiptKey]) -> Result<Vec<Looks>>;

    /// Claims a batch in one statement; the answers are in the order of the requests. A claim whose commit was
    /// not acknowledged is read back by worker and grant.
    async fn claim(&self, batch: &ClaimBatch<'_>) -> Result<Vec<ClaimAnswer>>;

    /// Records a batch of ends with their events; no key twice, the answers are in the order of the requests. A
    /// settle that is not the end of the current claim changes nothing but the events, except that proof of
    /// acceptance makes a receipt `sent`: at once where nobody holds a live claim, else when that claim ends.
    /// A receipt that the database has lost is restored. Repeating a settle is a success.
    async fn settle(&self, run_number: i64, week: IsoWeek, requests: &[SettleRequest]) -> Result<Vec<SettleAnswer>>;

    /// The claims among `keys` whose lease has ended, with what is needed to declare them ambiguous.
    async fn ended_leases(&self, week: IsoWeek, keys: &[ReceiptKey]) -> Result<Vec<EndedLease>>;

    /// Declares claims ambiguous whose lease has ended on the database's clock and whose grant is still the
    /// current one. Answers how many that were.
    async fn end_leases(&self, run_number: i64, week: IsoWeek, requests: &[SettleRequest]) -> Result<u64>;

    /// Records conflicts with both fingerprints; no key twice. A receipt becomes `quarantined` unless it is sent, claimed or in
    /// doubt; a claimed one will when it is settled otherwise than sent. Repeating changes nothing but a count.
    async fn record_conflicts(&self, run_number: i64, week: IsoWeek, conflicts: &[ConflictRecord]) -> Result<()>;

    /// Sets aside what another content version has certainly not sent, so that `run` may send its own: of `keys`,
    /// which belong to other versions of its week, each that is `retryable` with nothing in doubt or `failed` becomes
    /// `failed: superseded`, with an event of the kind `review`. Answers, in the order of `keys`, which are superseded
    /// now; every other one has changed since it was looked at, or is none's.
    async fn supersede(&self, run: &Run, keys: &[ReceiptKey]) -> Result<Vec<bool>>;

    /// Records a person's decision about one receipt with its event, and closes its conflicts; what
    /// [`crate::receipt::review()`] makes of it is decided and written under one lock, provided that state and grant
    /// are as the person saw them. What is to be sent again opens its run and part again, in the run whose snapshot
    /// holds the chosen content, unless another version of the week has a run that is open or has sent.
    async fn review(&self, review: &Review) -> Result<ReviewAnswer>;

    /// Closes a run as a person decided, for good: no row without a receipt is claimed in it any more. Of its
    /// receipts, those that wait for another attempt become `failed: discarded`, those in doubt `held`, each with an
    /// event of the kind `review`; a live claim is left to its worker. Closing it again ends what has come since.
    async fn close_run(&self, run: &Run, actor: &str, note: &str) -> Result<RunClosing>;

    /// What became of a run's rows; `since` splits what was sent now from what was sent before.
    async fn run_counts(&self, run: &Run, since: Timestamp) -> Result<RunCounts>;

    /// The next instant at which a part of an open run, other than those in `besides`, wants work: now where one is
    /// open, else when one is due or its lease ends. `None` where every such part is done or the run is closed.
    async fn next_due_at(&self, run_number: i64, besides: &[u32]) -> Result<Option<Timestamp>>;

    /// The receipt of a key, in any week.
    async fn receipt(&self, key: &ReceiptKey) -> Result<Option<ReceiptRecord>>;

    /// The events of a receipt, oldest first.
    async fn events(&self, week: IsoWeek, key: &ReceiptKey) -> Result<Vec<EventRecord>>;

    /// Receipts by filter, in the order (week, key).
    async fn receipts(&self, filter: &ReceiptFilter) -> Result<Vec<ReceiptRecord>>;

    /// Takes `count` sends of a destination's shared rate.
    async fn reserve(&self, destination: &str, count: u32, rate: Rate) -> Result<Reservation>;

    /// Pauses a destination for every worker until then; never shortens a pause. What was reserved and not used by now
    /// lapses: whoever waits for it reserves anew once the pause is over.
    async fn pause(&self, destination: &str, until: Timestamp) -> Result<()>;

    /// What keeps every worker from a destination now. Reads only.
    async fn pace(&self, destination: &str) -> Result<Pace>;

    /// Opens a destination's breaker for every worker, with its first probe a probe interval from now. Answers
    /// whether it was closed; one that is open is left as it is.
    async fn open_breaker(&self, destination: &str) -> Result<bool>;

    /// Takes the next probe of an open breaker, if one is due; the one after it is due a probe interval from now.
    /// Of any number who ask at once one gets it.
    async fn take_probe(&self, destination: &str) -> Result<bool>;

    /// Counts a probe's answer towards closing the breaker that opened then; a failure counts from nothing again.
    /// Answers whether that closed it.
    async fn probe_answered(&self, destination: &str, opened_at: Timestamp, accepted: bool) -> Result<bool>;

    /// Closes every connection. SQLite then folds its write-ahead log into the one file, so that a copy of that file
    /// is a copy of the ledger. No verb may be used afterwards.
    async fn close(&self);
}
