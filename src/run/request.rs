//! What a run is asked to do, as the command line or a test says it.

use std::path::PathBuf;

use jiff::SignedDuration;

use crate::identity::{ContentVersion, DigestType, WeekSelector};
use crate::ledger::Mode;

/// Where the rows come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotSource {
    /// An export to seal.
    File(PathBuf),
    /// A snapshot that is sealed already, by its id of 64 hex digits.
    Sealed(String),
}

/// What to do with an export that holds bad rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadRow {
    /// Seal nothing.
    #[default]
    Refuse,
    /// Seal the good rows and list the others.
    SetAside,
}

/// A run as it is asked for.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// `None`: only finish earlier open runs.
    pub snapshot: Option<SnapshotSource>,
    /// Which week.
    pub week: WeekSelector,
    /// Which type of digest.
    pub digest_type: DigestType,
    /// A version other than the configured one.
    pub content_version: Option<ContentVersion>,
    /// Which mode.
    pub mode: Mode,
    /// What to do with bad rows.
    pub on_bad_row: OnBadRow,
    /// Where to list rows that are set aside.
    pub rejects: Option<PathBuf>,
    /// Refuse an input of another number of rows.
    pub expect_rows: Option<u64>,
    /// Refuse an input file of another SHA-256.
    pub expect_sha256: Option<[u8; 32]>,
    /// Go on although the number of rows differs much from the last run's.
    pub accept_row_count: bool,
    /// Go on although the snapshot was used for another week.
    pub reuse_snapshot: bool,
    /// Another deadline than the configured one, after the week's end.
    pub send_within: Option<SignedDuration>,
    /// How long to wait for what is due later; `None`: the longest lease plus settle time, at least 15 minutes.
    pub wait: Option<SignedDuration>,
    /// Send although another version of this week and type has a run.
    pub correction: bool,
}
