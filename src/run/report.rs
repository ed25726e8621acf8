//! What a run came to: every sealed row in exactly one outcome, and how the work ended. How that is shown and which
//! exit code it is lives with the command line.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

use crate::identity::{ContentVersion, DigestType, IsoWeek};
use crate::ledger::{Mode, Run, RunCounts};

/// The summary of a whole run, whoever worked on it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// Id of the run.
    pub run_id: String,
    /// Its week.
    #[serde(serialize_with = "as_text")]
    pub iso_week: IsoWeek,
    /// Its type.
    #[serde(serialize_with = "as_text")]
    pub digest_type: DigestType,
    /// Its version.
    #[serde(serialize_with = "as_text")]
    pub content_version: ContentVersion,
    /// Its mode.
    #[serde(serialize_with = "mode_word")]
    pub mode: Mode,
    /// What it was about.
    pub snapshot: SnapshotCounts,
    /// What became of each row.
    pub outcomes: Outcomes,
    /// From the start of this invocation to its end.
    pub elapsed_seconds: f64,
    /// What decides the exit code besides the counts.
    #[serde(skip)]
    pub ending: Ending,
}

/// The input of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotCounts {
    /// Id of the sealed snapshot.
    pub id: String,
    /// Sealed rows.
    pub rows: u64,
    /// Rows that stood in the input again alike.
    pub repeated: u64,
    /// Rows set aside.
    pub rejected: u64,
}

/// The rows of a run by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Outcomes {
    /// Sent since this invocation began.
    pub sent: u64,
    /// Sent since this invocation began, after an earlier attempt had been in doubt.
    pub reconciled: u64,
    /// Sent before.
    pub duplicate: u64,
    /// A live claim, or waiting to be reconciled.
    pub in_progress: u64,
    /// Waiting for another attempt.
    pub retryable: u64,
    /// In doubt, and only a person can decide.
    pub held: u64,
    /// Not sent and not tried again.
    pub failed: u64,
    /// Another content stands under the same key.
    pub quarantined: u64,
    /// The recipient does not want it.
    pub suppressed: u64,
    /// Served under another content version.
    pub other_version: u64,
    /// Not in the cohort.
    pub outside_cohort: u64,
    /// Only looked at.
    pub observed: u64,
    /// Nobody has claimed it.
    pub never_claimed: u64,
}

impl Outcomes {
    /// The sum, which is the number of sealed rows.
    pub fn total(&self) -> u64 {
        self.sent
            + self.reconciled
            + self.duplicate
            + self.in_progress
            + self.retryable
            + self.held
            + self.failed
            + self.quarantined
            + self.suppressed
            + self.other_version
            + self.outside_cohort
            + self.observed
            + self.never_claimed
    }
}

/// How a run ended, as far as the counts do not tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ending {
    /// Of the failed rows, those that failed for another reason than the provider's refusal of one recipient.
    pub failed_otherwise: u64,
    /// The brake that stopped the run and how to go on, in words.
    pub brake: Option<String>,
    /// Whether rows that nobody claimed can still be claimed.
    pub open: bool,
    /// When the next row that waits is due.
    pub next_due_at: Option<Timestamp>,
    /// The destinations that rows wait for, each with why, in words.
    pub waits_for: Vec<String>,
}

impl RunSummary {
    /// Sums up a run from what the ledger counted.
    pub(super) fn of_run(run: &Run, counts: &RunCounts, ending: Ending, elapsed: Duration) -> Self {
        let foreign = &counts.foreign;
        let mut outcomes = Outcomes {
            sent: counts.sent,
            reconciled: counts.reconciled,
            duplicate: counts.sent_before + foreign.duplicate,
            in_progress: counts.in_progress + foreign.in_progress,
            retryable: counts.retryable + foreign.retryable,
            held: counts.held + foreign.held,
            failed: counts.failed_rejected + counts.failed_other + foreign.failed,
            quarantined: counts.quarantined + counts.conflicts + foreign.quarantined,
            suppressed: counts.suppressed + foreign.suppressed,
            other_version: foreign.other_version,
            ..Outcomes::default()
        };
        outcomes.never_claimed = run.new.rows.saturating_sub(outcomes.total());
        Self {
            run_id: run.new.run_id.clone(),
            iso_week: run.new.iso_week,
            digest_type: run.new.digest_type.clone(),
            content_version: run.new.content_version.clone(),
            mode: run.new.mode,
            snapshot: SnapshotCounts {
                id: run.new.snapshot_id.clone(),
                rows: run.new.rows,
                repeated: run.new.repeated,
                rejected: run.new.rejected,
            },
            outcomes,
            elapsed_seconds: elapsed.as_secs_f64(),
            ending: Ending { failed_otherwise: counts.failed_other + foreign.failed, ..ending },
        }
    }
}

/// What an invocation did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunReport {
    /// The run that was asked for.
    pub main: Option<RunSummary>,
    /// Earlier open runs that were worked on first.
    pub earlier: Vec<RunSummary>,
    /// Earlier open runs that cannot be finished: id, and why.
    pub blocked: Vec<(String, String)>,
    /// A stop came before every earlier run was looked at.
    pub unfinished: bool,
    /// The run that was asked for is not begun: this one of another version is still open.
    pub waits_for: Option<WaitsFor>,
    /// The run that was asked for was open already and had been triggered this long before.
    pub joined_after: Option<SignedDuration>,
    /// Ids of open runs that were left alone, because of the mode.
    pub left_open: Vec<String>,
}

/// A run of another version that must be closed first: one digest a week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitsFor {
    /// Its id.
    pub run_id: String,
    /// Its week.
    #[serde(serialize_with = "as_text")]
    pub iso_week: IsoWeek,
    /// Its type.
    #[serde(serialize_with = "as_text")]
    pub digest_type: DigestType,
    /// Its version.
    #[serde(serialize_with = "as_text")]
    pub content_version: ContentVersion,
}

impl WaitsFor {
    pub(super) fn of(run: &Run) -> Self {
        Self {
            run_id: run.new.run_id.clone(),
            iso_week: run.new.iso_week,
            digest_type: run.new.digest_type.clone(),
            content_version: run.new.content_version.clone(),
        }
    }
}

fn as_text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn mode_word<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(mode.as_str())
}
