//! What a run is asked to do, as the command line or a test says it.

use std::path::PathBuf;
use std::str::FromStr;

use jiff::SignedDuration;

use super::LedgerLoss;
use crate::identity::{ContentVersion, DigestType, WeekSelector};
use crate::ledger::Mode;
use crate::snapshot::OnBadRow;

/// Where the rows come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotSource {
    /// An export that is sealed first.
    File(PathBuf),
    /// A sealed snapshot: 64 lower-case hex digits, or at least the first 12 of them.
    Sealed(String),
}

impl FromStr for SnapshotSource {
    type Err = String;

    /// 12 to 64 lower-case hex digits are an id; a file of such a name is written `./NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match text.len() {
            0 => Err("is empty".to_owned()),
            12..=64 if is_hex => Ok(Self::Sealed(text.to_owned())),
            _ => Ok(Self::File(PathBuf::from(text))),
        }
    }
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
    /// Send to all although another version of this week and type has a run.
    pub correction: bool,
    /// Send to those only whom no other version of this week and type has served.
    pub only_unsent: bool,
    /// What the ledger's owner says about a loss.
    pub ledger_loss: LedgerLoss,
}

/// Work on runs that are open, as it is asked for.
#[derive(Debug, Clone)]
pub struct WorkRequest {
    /// Only the run with this id; `None`: every open one.
    pub run: Option<String>,
    /// In mode `observe` open runs are only named.
    pub mode: Mode,
    /// As [`RunRequest::wait`].
    pub wait: Option<SignedDuration>,
    /// As [`RunRequest::ledger_loss`].
    pub ledger_loss: LedgerLoss,
}

impl RunRequest {
    /// Sends a snapshot for a week under enforcement; every guard on.
    pub fn new(snapshot: SnapshotSource, week: WeekSelector, digest_type: DigestType) -> Self {
        Self {
            snapshot: Some(snapshot),
            week,
            digest_type,
            content_version: None,
            mode: Mode::Enforce,
            on_bad_row: OnBadRow::default(),
            rejects: None,
            expect_rows: None,
            expect_sha256: None,
            accept_row_count: false,
            reuse_snapshot: false,
            send_within: None,
            wait: None,
            correction: false,
            only_unsent: false,
            ledger_loss: LedgerLoss::Detect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_told_from_a_file() {
        let id = "5a".repeat(32);
        assert_eq!(id.parse(), Ok(SnapshotSource::Sealed(id.clone())));
        assert_eq!("5a5a5a5a5a5a".parse(), Ok(SnapshotSource::Sealed("5a5a5a5a5a5a".to_owned())));
        for file in ["export.jsonl", "./5a5a5a5a5a5a", "5A5A5A5A5A5A", "5a5a", &"5a".repeat(33)] {
            assert_eq!(file.parse(), Ok(SnapshotSource::File(PathBuf::from(file))), "{file}");
        }
        assert!("".parse::<SnapshotSource>().is_err());
    }
}
