//! Runs as they are asked for and as the ledger has them: pins, parts, counts. No SQL.

use jiff::Timestamp;

use crate::identity::keyring::CheckValue;
use crate::identity::{ContentVersion, DigestType, IsoWeek};

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
    /// Sends to all although another version of this week and type has a run.
    pub correction: bool,
    /// Sends to those only whom no other version of this week and type has served.
    pub only_unsent: bool,
}

impl NewRun {
    /// One digest a week: the run of another version that keeps this one from being opened. That is one that is open,
    /// whatever was asked for, and one that has ended where this run neither leaves out whom it has served nor is a
    /// correction. `same_week` are the claiming runs of the week and type, oldest first.
    pub fn in_the_way<'a>(&self, same_week: &'a [Run]) -> Option<&'a Run> {
        let claims = self.mode != Mode::Observe;
        let is_other = |run: &&Run| claims && run.new.content_version != self.content_version;
        let others = || same_week.iter().filter(is_other);
        let ended = others().next_back().filter(|_| !self.correction && !self.only_unsent);
        others().find(|run| run.closed_at.is_none()).or(ended)
    }
}

/// What became of a run that was to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// It is new.
    Opened(Run),
    /// There was one with the same id; this is another trigger of it.
    Joined {
        /// As it was begun: what is asked for now changes nothing of it.
        run: Run,
        /// The trigger before this one.
        last_triggered_at: Timestamp,
    },
    /// Not opened: this run of another version is in the way, see [`NewRun::in_the_way`].
    OtherVersion(Run),
}

impl Opening {
    /// The run, where it is open or was joined.
    pub fn run(self) -> Option<Run> {
        match self {
            Self::Opened(run) | Self::Joined { run, .. } => Some(run),
            Self::OtherVersion(_) => None,
        }
    }
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
    /// Quarantined in another run. A row in conflict is not counted here: its conflict is recorded.
    pub quarantined: u64,
    /// Left out because another content version has served the customer, or may have.
    pub other_version: u64,
}

/// What [`super::Ledger::take_part`] found.
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
    /// Failed with nothing left to decide: the provider refused them, a person discarded them, or another version
    /// took their place.
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
