//! Why a run is refused before anything is claimed: what is wrong, and how to go on. Nothing is decided here.

use jiff::Timestamp;

use crate::identity::{ContentVersion, DigestType, IsoWeek};
use crate::snapshot::SealError;

/// A run that is refused before anything is claimed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A setting.
    #[error("{0}")]
    Configuration(String),
    /// The keyring.
    #[error("the keyring {0}")]
    Keyring(String),
    /// The template bundle.
    #[error(transparent)]
    Bundle(#[from] crate::digest::BundleError),
    /// The export.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The week chosen by the clock, or its dates.
    #[error("the week {0}")]
    Week(#[from] crate::identity::WeekError),
    /// The ledger belongs to another environment.
    #[error(
        "this ledger belongs to the environment `{pinned}`, the configuration says `{configured}`; a copy of a ledger must not send. \
         Point `ledger.url` at this environment's own ledger, or correct `environment`"
    )]
    Environment {
        /// The ledger's.
        pinned: String,
        /// Ours.
        configured: String,
    },
    /// The keyring's `[stable]` secret is not the one the ledger knows.
    #[error(
        "the keyring's [stable] secret is not the one that this ledger was first used with (check value {pinned}, not {ours}): \
         cohorts, suppressions and unsubscribe links would all change. Restore the keyring that was used before"
    )]
    StableKey {
        /// Check value in the ledger, hex.
        pinned: String,
        /// Check value of ours, hex.
        ours: String,
    },
    /// The week's key is not the one the ledger knows.
    #[error(
        "week {week} was first sent under key `{pinned_id}` (check value {pinned}), the keyring has `{our_id}` (check value {ours}) for it: \
         every digest that was sent would look new. Restore that key's entry; to change keys, add an entry whose `from_week` is a coming week"
    )]
    WeekKey {
        /// The week.
        week: IsoWeek,
        /// Key id in the ledger.
        pinned_id: String,
        /// Check value in the ledger, hex.
        pinned: String,
        /// Key id in the keyring.
        our_id: String,
        /// Its check value, hex.
        ours: String,
    },
    /// The content changed under its version.
    #[error(
        "the content of {digest_type} {content_version} has changed since it was first used (templates, `from` or `unsubscribe`): \
         its receipts would all be in conflict. Undo the change, or give the new content a version of its own: \
         a new folder below templates/{digest_type}/ and `content_version` in [digest.{digest_type}]"
    )]
    Content {
        /// The type.
        digest_type: DigestType,
        /// The version.
        content_version: ContentVersion,
    },
    /// The week is too old.
    #[error(
        "week {week} is older than `retention.replay_horizon` ({weeks} weeks): its receipts may be gone, so a repeat could not be told from a first time. Raise the horizon only if you know that no receipt of that week was removed"
    )]
    Horizon {
        /// The week.
        week: IsoWeek,
        /// The horizon.
        weeks: u32,
    },
    /// The deadline of a new run is over.
    #[error(
        "the deadline for week {week} was {deadline}: nothing is sent so late. If it should go out all the same, say how long after the week's end it may, for example `--send-within \"{suggestion}\"`"
    )]
    Deadline {
        /// The week.
        week: IsoWeek,
        /// When it was.
        deadline: Timestamp,
        /// A value that would allow it.
        suggestion: String,
    },
    /// The number of rows differs much from last time.
    #[error(
        "the snapshot has {rows} rows, the last run of {digest_type} (week {week}) had {last}: that differs by more than `max_row_change` ({allowed:.0} %). If the number is right, repeat with `--accept-row-count`"
    )]
    RowCount {
        /// Sealed rows.
        rows: u64,
        /// Rows last time.
        last: u64,
        /// The type.
        digest_type: DigestType,
        /// That run's week.
        week: IsoWeek,
        /// In per cent.
        allowed: f64,
    },
    /// The snapshot was used for another week.
    #[error(
        "this snapshot ({snapshot}) was already sent as week {week}: last week's file must not go out under this week's name. If it is really meant, repeat with `--reuse-snapshot`"
    )]
    Reused {
        /// Its id, shortened.
        snapshot: String,
        /// The other week.
        week: IsoWeek,
    },
    /// The ledger has lost the run of another version of the week and type.
    #[error(
        "the snapshot store has markers of a run of version {other} ({run}) for week {week} of {digest_type} that this ledger does not know: it was restored from an older copy, and that version may have been sent. Start that version's run again first, so that it is finished; or, if it was not sent, repeat with `--accept-ledger-loss`"
    )]
    LostRun {
        /// The week.
        week: IsoWeek,
        /// The type.
        digest_type: DigestType,
        /// The other version.
        other: ContentVersion,
        /// Its run, shortened.
        run: String,
    },
    /// Another version of the week and type was sent.
    #[error(
        "week {week} of {digest_type} was already sent as version {other}: everyone would get a second digest. Repeat with `--only-unsent` to send to those only whom {other} has not reached, or with `--correction` to send to all"
    )]
    OtherVersion {
        /// The week.
        week: IsoWeek,
        /// The type.
        digest_type: DigestType,
        /// The other version.
        other: ContentVersion,
    },
}
