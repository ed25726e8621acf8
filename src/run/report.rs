//! What a run reports: every sealed row in exactly one outcome, and why the work ended.

use std::time::Duration;

use serde::Serialize;

use crate::ledger::{Run, RunCounts};

/// Why the work on a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Every row is settled and the run is closed.
    Closed,
    /// Stopped, or what is left is due too late to wait for.
    Unfinished,
    /// A brake is on; its words say how to go on.
    Brake(String),
}

/// The snapshot of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotSummary {
    /// Its id.
    pub id: String,
    /// Sealed rows.
    pub rows: u64,
    /// Rows that stood in the export more than once alike.
    pub repeated: u64,
    /// Rows set aside.
    pub rejected: u64,
}

/// Every sealed row, by what became of it; the numbers add up to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Outcomes {
    /// Accepted since this invocation began.
    pub sent: u64,
    /// Accepted since this invocation began, after an earlier attempt had been in doubt.
    pub reconciled: u64,
    /// Sent before this invocation began, or by another run.
    pub duplicate: u64,
    /// Claimed by a live worker, or waiting to be looked up or replayed.
    pub in_progress: u64,
    /// Waiting for another attempt.
    pub retryable: u64,
    /// Waiting for a person: may have been accepted, and nothing can tell.
    pub held: u64,
    /// Not sent and not tried again.
    pub failed: u64,
    /// In conflict: one key, two contents.
    pub quarantined: u64,
    /// The recipient is on a suppression list.
    pub suppressed: u64,
    /// Left out because another version was sent.
    pub other_version: u64,
    /// Left out because the cohort does not hold the customer.
    pub outside_cohort: u64,
    /// Observed only.
    pub observed: u64,
    /// Not claimed by anybody (yet).
    pub never_claimed: u64,
}

/// The summary of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// Derived from snapshot, week, type, version and mode.
    pub run_id: String,
    /// `YYYY-Www`.
    pub iso_week: String,
    /// The type.
    pub digest_type: String,
    /// The version.
    pub content_version: String,
    /// The mode.
    pub mode: String,
    /// The snapshot.
    pub snapshot: SnapshotSummary,
    /// The rows.
    pub outcomes: Outcomes,
    /// Since the invocation began.
    pub elapsed_seconds: f64,
    /// Failed for another reason than a rejection by the provider: these wait for a person.
    #[serde(skip)]
    pub failed_otherwise: u64,
    /// Why the work ended.
    #[serde(skip)]
    pub ending: Ending,
}

impl RunSummary {
    /// Sums up a run from what the ledger counted.
    pub fn of_run(run: &Run, counts: &RunCounts, ending: Ending, elapsed: Duration) -> Self {
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
            ..Outcomes::default()
        };
        outcomes.never_claimed = run.new.rows.saturating_sub(outcomes.total());
        Self {
            run_id: run.new.run_id.clone(),
            iso_week: run.new.iso_week.to_string(),
            digest_type: run.new.digest_type.to_string(),
            content_version: run.new.content_version.to_string(),
            mode: run.new.mode.as_str().to_owned(),
            snapshot: SnapshotSummary {
                id: run.new.snapshot_id.clone(),
                rows: run.new.rows,
                repeated: run.new.repeated,
                rejected: run.new.rejected,
            },
            outcomes,
            elapsed_seconds: elapsed.as_secs_f64(),
            failed_otherwise: counts.failed_other + foreign.failed,
            ending,
        }
    }

    /// Whether something of this run waits for a person.
    pub fn needs_a_person(&self) -> bool {
        self.outcomes.held + self.outcomes.quarantined + self.failed_otherwise + self.snapshot.rejected > 0
    }
}

impl Outcomes {
    /// The sum of all outcomes.
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
}

impl RunReport {
    /// The documented exit code: 0 all settled, 3 something waits for a person, 4 work is left. 4 wins over 3,
    /// except that a brake is always 3.
    pub fn exit_code(&self) -> u8 {
        let all = || self.main.iter().chain(&self.earlier);
        if all().any(|run| matches!(run.ending, Ending::Brake(_))) {
            3
        } else if self.unfinished || all().any(|run| run.ending == Ending::Unfinished) {
            4
        } else if !self.blocked.is_empty() || all().any(RunSummary::needs_a_person) {
            3
        } else {
            0
        }
    }
}
